"""Playbooks of jobs that hang, are ended, or lose memory or a node; see ``planted``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.playbooks import named
from tests.support.diagnosis import case_of
from tests.support.inventory.commands import command
from tests.support.inventory.planted import (
    ACK,
    CNP,
    GPU,
    HANG,
    HEART,
    NODE,
    OOM,
    RETX,
    TCP,
    errors,
    host,
)
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import (
    answer,
    asks,
    cause,
    played,
    scenario,
    told,
)
from tests.support.tsdb_scenarios.ranges import MODELS
from tests.support.tsdb_scenarios.world import REST, World

UTIL = ("ray_node_gpus_utilization", "hw_gpu_utilization_ratio")
USED = ("ray_node_mem_used", "hw_mem_available_bytes")


def hangs(world: World) -> None:
    """All GPUs poll from the middle on."""
    world.halt = 1400.0


def beat(world: World) -> None:
    """The job trains, and is then ended: its heartbeats stopped 100 s before."""
    world.halt = 1500.0
    world.state[:, :, world.after(1500.0)] = REST


def killed(world: World) -> None:
    """Memory grows on one host until the kernel kills."""
    ramp = np.clip((world.t - 100.0) / 1600.0, 0, 1)
    world.memory_extra[0] += 0.8 * ramp
    cell = int(1700 / world.interval)
    world.rates["hw_oom_kills_total"][0, cell] += 1.0 / world.interval
    world.memory_extra[0, cell + 1 :] = -0.2
    world.state[0, :, cell + 1 :] = REST
    world.halt = 1700.0


def broken(world: World) -> None:
    """An uncorrectable error on one GPU ends the job."""
    world.errors["hw_gpu_ras_umc_ue_total"][1, 0, int(1400 / world.interval)] += 2.0
    world.halt = 1410.0


ACCUSED = {"crash_at": 1_760_001_500.0, "heartbeat_timeout": 100.0, "accused": ("node002",)}


def _levels(folder: Path) -> None:
    for model, busy_wait in (("MI355X", True), ("H100", True)):
        found = named(HANG).run(case_of(played(hangs, model=model)))
        assert (found.cause == "busy-wait") is busy_wait
        working = named(HANG).run(case_of(played(model=model)))
        assert working.cause == "none"
    assert MODELS["MI355X"].work[0] > MODELS["MI355X"].wait[1]


def _administrator(folder: Path) -> None:
    text = answer(NODE, host("hw_dmesg_gpu_errors_total", 0.1)).administrator
    for word in ("node002", "kernel", "driver"):
        assert word in text.lower(), text
    assert not answer(NODE).administrator


ROWS = [
    # A hang
    Row("hang.power", "power of each GPU", asks(HANG, hangs, "hw_gpu_power_watts")),
    Row("hang.utilisation", "utilisation of each host", asks(HANG, hangs, *UTIL)),
    Row("hang.tcp", "TCP retransmits", asks(HANG, hangs, TCP)),
    Row("hang.rdma", "RDMA retransmits", asks(HANG, hangs, RETX)),
    Row("hang.ack", "RDMA time-outs", asks(HANG, hangs, ACK)),
    Row("hang.port", "port states", asks(HANG, hangs, "hw_rdma_port_state")),
    Row("hang.congestion", "congestion notifications", asks(HANG, hangs, CNP)),
    Row(
        "hang.busy-wait",
        "high utilisation at idle power, a clean network",
        cause(HANG, hangs, "busy-wait"),
    ),
    Row(
        "hang.partial", "only those that entered the collective are busy", scenario("hang-partial")
    ),
    Row(
        "hang.network",
        "retransmits just before it: the network began it",
        scenario("hang-network-trigger"),
    ),
    Row("hang.straggler", "some at work while most wait", scenario("hang-straggler")),
    Row(
        "hang.dead", "nothing on some nodes: they died, the others wait", scenario("hang-node-dark")
    ),
    Row("hang.dead-gone", "the same where their series end", scenario("hang-node-death")),
    Row("hang.none", "power of training: no hang", scenario("no-hang-bridge-gap")),
    Row(
        "hang.levels",
        "levels of models: at work, polling, at rest",
        Check("diagnose: collective-hang", _levels),
    ),
    # A heartbeat time-out
    Row("heartbeat.utilisation", "utilisation of the accused", asks(HEART, beat, *UTIL, **ACCUSED)),
    Row("heartbeat.memory", "their memory", asks(HEART, beat, *USED, **ACCUSED)),
    Row(
        "heartbeat.io",
        "their I/O pressure",
        asks(HEART, beat, "hw_io_pressure_full_pct", **ACCUSED),
    ),
    Row("heartbeat.tcp", "their TCP retransmits", asks(HEART, beat, TCP, **ACCUSED)),
    Row(
        "heartbeat.drops",
        "connections that the coordinator's host dropped",
        asks(HEART, beat, "hw_tcp_listen_drops_total", **ACCUSED),
    ),
    Row("heartbeat.dirty", "dirty pages", asks(HEART, beat, "hw_mem_dirty_bytes", **ACCUSED)),
    Row("heartbeat.false", "at work, quiet: a false alarm", scenario("heartbeat-clean")),
    Row(
        "heartbeat.network",
        "at work, with retransmits: the network held heartbeats back",
        scenario("heartbeat-network"),
    ),
    Row(
        "heartbeat.storage",
        "at work, with I/O pressure: writing held them back",
        scenario("heartbeat-storage"),
    ),
    Row("heartbeat.true", "not at work: they may have died", scenario("heartbeat-died")),
    Row("heartbeat.gone", "the same where their series end", scenario("heartbeat-vanished")),
    Row(
        "heartbeat.told",
        "who is accused, when it crashed and the time-out",
        command(
            "diagnose",
            ".",
            "--accused",
            "a,b",
            "--crash-time",
            "1760001000",
            "--heartbeat-timeout",
            "180",
            accused="a,b",
            heartbeat_timeout=180.0,
        ),
    ),
    Row(
        "heartbeat.coordinator",
        "whose heartbeats were missed: the coordinator's host",
        command("diagnose", ".", "--coordinator", "node001", coordinator="node001"),
    ),
    # Host memory
    Row("oom.used", "memory over time", asks(OOM, killed, *USED)),
    Row("oom.kills", "kills", asks(OOM, killed, "hw_oom_kills_total")),
    Row("oom.dirty", "dirty pages", asks(OOM, killed, "hw_mem_dirty_bytes")),
    Row("oom.writeback", "pages under writeback", asks(OOM, killed, "hw_mem_writeback_bytes")),
    Row("oom.pressure", "I/O pressure", asks(OOM, killed, "hw_io_pressure_full_pct")),
    Row("oom.blocked", "blocked processes", asks(OOM, killed, "hw_procs_blocked")),
    Row("oom.vram", "GPU memory beside it", asks(OOM, killed, "hw_gpu_vram_used_bytes")),
    Row("oom.leak", "a ramp is a leak", cause(OOM, killed, "memory-leak", "node001")),
    Row("oom.spike", "a sudden rise: data or a compilation", scenario("oom-spike")),
    Row("oom.periodic", "peaks at saves, one of them too high", scenario("oom-checkpoint")),
    Row("oom.writers", "only those that write checkpoints", scenario("oom-checkpoint-growing")),
    Row("oom.all", "all nodes at once", scenario("oom-spike-everywhere")),
    # Hardware
    *(
        Row(f"node.{key}", what, asks(NODE, broken, name))
        for key, what, name in (
            ("hbm-ue", "uncorrectable errors of GPU memory", "hw_gpu_ras_umc_ue_total"),
            ("hbm-ce", "correctable errors of GPU memory", "hw_gpu_ras_umc_ce_total"),
            ("xgmi-ue", "uncorrectable errors of links between GPUs", "hw_gpu_ras_xgmi_ue_total"),
            ("xgmi-ce", "correctable errors of these links", "hw_gpu_ras_xgmi_ce_total"),
            ("gfx-ue", "errors of the compute engine", "hw_gpu_ras_gfx_ue_total"),
            ("pcie-fatal", "fatal PCIe errors", "hw_gpu_pcie_fatal_total"),
            ("pcie-nonfatal", "non-fatal PCIe errors", "hw_gpu_pcie_nonfatal_total"),
            ("kernel", "GPU errors in the kernel's log", "hw_dmesg_gpu_errors_total"),
            ("port", "port states", "hw_rdma_port_state"),
            ("heat", "heat before it", "hw_gpu_temperature_celsius"),
        )
    ),
    Row(
        "node.ue-found",
        "any uncorrectable error is a fault; the node must go",
        cause(
            NODE,
            broken,
            "uncorrectable-memory-error",
            "node002",
            below=errors("hw_gpu_ras_umc_ue_total", 0),
        ),
    ),
    Row("node.ue-drain", "and is to be drained", told(NODE, broken, "must be drained")),
    Row(
        "node.xgmi-found",
        "the same of a link",
        cause(NODE, errors("hw_gpu_ras_xgmi_ue_total", 1), "uncorrectable-link-error", "node002"),
    ),
    Row(
        "node.gfx-found",
        "the same of an engine",
        cause(NODE, errors("hw_gpu_ras_gfx_ue_total", 1), "uncorrectable-gpu-error", "node002"),
    ),
    Row(
        "node.ce-found",
        "many correctable errors: it degrades",
        cause(
            GPU,
            errors("hw_gpu_ras_umc_ce_total", 1),
            "degrading-memory",
            "node002",
            below=errors("hw_gpu_ras_umc_ce_total", 0),
        ),
    ),
    Row(
        "node.pcie-found",
        "a fatal PCIe error",
        cause(NODE, errors("hw_gpu_pcie_fatal_total", 0.1), "pcie-fatal", "node002"),
    ),
    Row(
        "node.kernel-found",
        "the kernel's log counts GPU errors",
        cause(NODE, host("hw_dmesg_gpu_errors_total", 0.1), "driver-fault", "node002"),
    ),
    Row(
        "node.compare",
        "the one that has errors while the others have none",
        scenario("hardware-uncorrectable"),
    ),
    Row(
        "node.driver",
        "slow cycles by turns, holes in GPU series, errors in the log: a driver that hangs",
        scenario("hardware-driver-hang"),
    ),
    Row(
        "node.driver-impact",
        "training goes on; the node needs a reboot",
        told(NODE, host("hw_dmesg_gpu_errors_total", 0.1), "Training itself goes on", "reboot"),
    ),
    Row(
        "node.report",
        "a report for the administrator",
        Check("diagnose: administrator", _administrator),
    ),
]
