"""Playbooks of training's stability and of checkpoints, and how logs lead to playbooks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.examine import take_stock
from tests.support.inventory.logs import catalogue
from tests.support.inventory.planted import (
    ACK,
    CNP,
    HANG,
    HEART,
    NET,
    NODE,
    OOM,
    RETX,
    TCP,
    TRAIN,
    both,
    clocked,
    errors,
    host,
    link,
    slower,
    warmer,
    weaker,
)
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import (
    BEGIN,
    Plant,
    answer,
    asks,
    case,
    cause,
    said,
    scenario,
    told,
)
from tests.support.tsdb_scenarios.world import World


def gauge(name: str, rise: float) -> Plant:
    """One host's gauge is so much higher."""

    def plant(world: World) -> None:
        world.gauges[name][1, world.after(BEGIN)] += rise

    return plant


def own(name: str, usual: float, then: float) -> Plant:
    """A gauge that only one host has."""

    def plant(world: World) -> None:
        values = np.where(world.after(BEGIN), then, usual) + 0.01 * world.rng.normal(
            size=world.t.size
        )
        world.extra.append((name, {"host": "node002"}, world.times, values))

    return plant


def unclipped(world: World) -> None:
    """No gradient norm before clipping is recorded."""
    world.skip.add("tb_learning_raw_grad_norm")


def fuller(world: World) -> None:
    """A host's memory fills up."""
    world.memory_extra[1, world.after(BEGIN)] = 0.9


def scalar(name: str, factor: float) -> Plant:
    """A scalar of the training jumps."""

    def change(world: World) -> None:
        world.scalars.setdefault(name, 0.01 + 0.0001 * world.rng.normal(size=world.ends.size))
        values = world.scalars[name] = world.scalars[name].copy()
        values[world.ends >= BEGIN] *= factor

    return lambda world: world.transforms.append(change)


def _throughput(folder: Path) -> None:
    def plant(world: World) -> None:
        slower(1.3)(world)
        world.skip |= {"tb_perf_step_time_seconds"}

    assert "Throughput regression" in said(answer(TRAIN, plant))
    assert "Throughput regression" not in said(answer(TRAIN))


def _checklist(folder: Path) -> None:
    quiet = dict(answer(TRAIN, slower(1.12)).tables[0].rows)
    assert set(quiet) == {
        *("CPU", "Network (TCP)", "Network (RDMA)", "Storage I/O", "Memory"),
        *("GPU thermal", "GPU hardware", "Training"),
    }
    several = both(
        gauge("hw_procs_running", 120), gauge("hw_io_pressure_full_pct", 50), slower(1.2)
    )
    rows = dict(answer(TRAIN, several).tables[0].rows)
    assert [name for name, seen in rows.items() if seen != quiet[name]] == ["CPU", "Storage I/O"]


def _fill(folder: Path) -> None:
    def plant(world: World) -> None:
        fill = world.after(1800.0).astype(float)
        labels = {"host": "node001"}
        world.extra.append(("tb_metrics_plugin_staleness_fill", labels, world.times, fill))

    assert any("synthetic fill" in text for text in take_stock(case(plant)).warnings)
    assert not any("synthetic fill" in text for text in take_stock(case()).warnings)


def _handoff(kind: str, playbook: str, folder: Path) -> None:
    advice = [one.playbook for one in catalogue().advice_for(kind) if one.playbook]
    assert advice[:1] == [playbook]
    assert not catalogue().advice_for("no-such-class")


ROWS = [
    # Training
    *(
        Row(f"train.{key}", what, asks(TRAIN, slower(1.2), name))
        for key, what, name in (
            ("loss", "loss", "tb_learning_loss"),
            ("raw-grad", "gradient norm before clipping", "tb_learning_raw_grad_norm"),
            ("step-time", "step time", "tb_perf_step_time_seconds"),
            ("rate", "learning rate", "tb_learning_current_learning_rate"),
            ("step", "step", "tb_step"),
            ("moe", "balance of experts", "tb_learning_moe_lb_loss"),
        )
    ),
    Row(
        "train.grad",
        "gradient norm, where none before clipping is told",
        told(
            TRAIN,
            both(unclipped, scalar("tb_learning_grad_norm", 30.0)),
            "gradient norm up to",
            below=unclipped,
        ),
    ),
    Row(
        "train.throughput",
        "throughput, where no step time is told",
        Check("diagnose: pace", _throughput),
    ),
    Row("train.fill", "made-up samples are left out", Check("diagnose: inventory", _fill)),
    Row(
        "train.diverged",
        "a loss that rises and stays",
        cause(TRAIN, scalar("tb_learning_loss", 2.0), "loss-diverged"),
    ),
    Row("train.nan", "a loss that is no number", scenario("training-nan-loss")),
    Row(
        "train.grad-spike",
        "gradients that leap",
        told(TRAIN, scalar("tb_learning_raw_grad_norm", 30.0), "gradient norm up to"),
    ),
    Row(
        "train.clipped",
        "clipping that may be too strong",
        told(TRAIN, scalar("tb_learning_raw_grad_norm", 30.0), "gradients are clipped"),
    ),
    Row(
        "train.routing",
        "experts that are unevenly used",
        cause(
            TRAIN,
            both(scalar("tb_learning_moe_lb_loss", 3.0), slower(1.2)),
            "moe-shift",
            below=slower(1.2),
        ),
    ),
    Row(
        "train.rate-jump",
        "a learning rate that jumps",
        told(TRAIN, scalar("tb_learning_current_learning_rate", 8.0), "learning rate jumped"),
    ),
    Row("train.rate-root", "and what follows from it", scenario("training-lr-divergence")),
    Row("train.saves", "steps that are long at saves are none", scenario("healthy-plain")),
    Row(
        "train.slower",
        "more than a tenth slower",
        told(TRAIN, slower(1.12), "Throughput regression", below=slower(1.03)),
    ),
    Row("train.heat", "heat, then clock, then steps", scenario("gpu-throttle")),
    *(
        Row(
            f"contention.{key}",
            what,
            told(TRAIN, both(plant, slower(1.2)), word, below=slower(1.2)),
        )
        for key, what, plant, word in (
            (
                "running",
                "runnable threads",
                gauge("hw_procs_running", 120),
                "runnable threads up by",
            ),
            (
                "blocked",
                "blocked processes",
                gauge("hw_procs_blocked", 15),
                "blocked processes up by",
            ),
            (
                "switches",
                "context switches",
                host("hw_context_switches_total", 6e5),
                "context switches up by 59",
            ),
            (
                "cpu",
                "CPU utilisation",
                own("ray_node_cpu_utilization", 30.0, 95.0),
                "CPU utilisation up by 65 %",
            ),
            (
                "gpu-processes",
                "processes on the GPUs",
                own("hw_gpu_user_processes", 8.0, 11.0),
                "processes on the GPUs up by 3",
            ),
            (
                "tcp",
                "TCP retransmits",
                host(TCP, 500),
                "does not carry the collectives: TCP retransmits up by",
            ),
            (
                "resets",
                "TCP resets",
                host("hw_tcp_estab_resets_total", 5),
                "TCP connection resets up by 5/s",
            ),
            (
                "aborts",
                "TCP connections given up",
                host("hw_tcp_abort_on_timeout_total", 0.5),
                "aborted on timeout up by 0.4",
            ),
            ("rdma", "RDMA retransmits", link(RETX, 500), "rdma1/1 of node002: retx"),
            ("ack", "RDMA time-outs", link(ACK, 2), "rdma1/1 of node002: ack_timeout"),
            ("cnp", "congestion notifications", both(link(CNP, 2000), link(ACK, 2)), "cnp"),
            (
                "io-full",
                "I/O pressure (full)",
                gauge("hw_io_pressure_full_pct", 50),
                "I/O pressure (full) up by 50 %",
            ),
            (
                "io-some",
                "I/O pressure (some)",
                gauge("hw_io_pressure_some_pct", 50),
                "I/O pressure (some) up by 50 %",
            ),
            (
                "dirty",
                "dirty pages",
                gauge("hw_mem_dirty_bytes", 2e10),
                "dirty pages up by 20.0 GB",
            ),
            (
                "writeback",
                "pages under writeback",
                gauge("hw_mem_writeback_bytes", 5e9),
                "pages under writeback up by 5.0 GB",
            ),
            ("memory", "host memory near its limit", fuller, "of its memory used"),
            ("oom", "kills", host("hw_oom_kills_total", 0.002), "OOM kills"),
            ("heat", "GPU temperature", warmer(17), "GPU temperature up by"),
            ("clock", "GPU clocks", clocked(0.7), "GPU core clock down by"),
            ("power", "GPU power", both(clocked(0.7), weaker(0.7)), "core clock"),
            (
                "ras",
                "GPU errors",
                errors("hw_gpu_ras_umc_ce_total", 1),
                "correctable errors within the job",
            ),
            (
                "pcie",
                "PCIe errors",
                errors("hw_gpu_pcie_correctable_total", 5),
                "correctable PCIe errors within the job",
            ),
            (
                "kernel",
                "GPU errors in the kernel's log",
                host("hw_dmesg_gpu_errors_total", 0.1),
                "GPU errors in the kernel log",
            ),
        )
    ),
    Row(
        "contention.cpu-found",
        "other load on a host",
        cause(
            TRAIN,
            both(gauge("hw_procs_running", 120), slower(1.2)),
            "cpu-contention",
            "node002",
            below=slower(1.2),
        ),
    ),
    Row(
        "contention.io-found",
        "storage that is slow",
        cause(
            TRAIN,
            both(gauge("hw_io_pressure_full_pct", 50), gauge("hw_procs_blocked", 15), slower(1.2)),
            "io-contention",
            "node002",
            below=slower(1.2),
        ),
    ),
    Row(
        "contention.all",
        "all of them are told, also those that are quiet",
        Check("diagnose: checklist", _checklist),
    ),
    # A checkpoint that could not be written
    Row(
        "save.worse", "storage was worse than at the saves before", scenario("checkpoint-congested")
    ),
    Row(
        "save.as-before", "storage was as before: another reason", scenario("checkpoint-as-before")
    ),
    Row(
        "save.usual",
        "pressure, blocked processes and retransmits at a save are usual",
        scenario("healthy-tcp-storm"),
    ),
    # From the logs' class to the playbook
    *(
        Row(
            f"handoff.{kind}",
            f"{kind} leads to {playbook}",
            Check("triage: playbook", partial(_handoff, kind, playbook)),
        )
        for kind, playbook in (
            ("hang", HANG),
            ("heartbeat-timeout", HEART),
            ("oom-host", OOM),
            ("node-fail", NODE),
            ("signal-kill", NODE),
            ("nccl-timeout", NET),
            ("unknown-death", NODE),
            ("checkpoint-fs-error", "checkpoint-fs-error"),
        )
    ),
]
