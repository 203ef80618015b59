"""Playbooks over a job's time series: what each looks at, its thresholds, what follows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.examine import take_stock
from ray_sentinel.diagnose.playbooks import named
from tests.support.diagnosis import case_of
from tests.support.inventory.commands import command
from tests.support.inventory.logs import catalogue
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import (
    BEGIN,
    Plant,
    answer,
    asks,
    case,
    cause,
    clear,
    played,
    said,
    scenario,
    told,
)
from tests.support.tsdb_scenarios.ranges import MODELS
from tests.support.tsdb_scenarios.world import REST, World

HANG, HEART, OOM = "collective-hang", "heartbeat-false-positive", "host-oom"
NODE, GPU, NET, TRAIN = (
    "node-hardware-failure", "gpu-health", "network-health", "training-stability",
)  # fmt: skip
UTIL = ("ray_node_gpus_utilization", "hw_gpu_utilization_ratio")
USED = ("ray_node_mem_used", "hw_mem_available_bytes")


# Jobs with something planted


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


def warmer(degrees: float) -> Plant:
    """One GPU is so much warmer than the 75 degrees of all others."""

    def plant(world: World) -> None:
        world.temp_extra[1, 0] += np.where(world.after(BEGIN), degrees, 0.0)

    return plant


def weaker(factor: float) -> Plant:
    """One GPU draws less than the 850 W of all others."""

    def plant(world: World) -> None:
        world.power_factor[1, 0] *= factor

    return plant


def clocked(factor: float) -> Plant:
    """One GPU's core clock drops at once."""

    def plant(world: World) -> None:
        world.clock_factor[1, 0, world.after(BEGIN)] *= factor

    return plant


def filled(share: float) -> Plant:
    """All GPUs use that share of their memory."""

    def plant(world: World) -> None:
        world.skip.add("hw_gpu_vram_used_bytes")
        for host in world.names:
            for gpu in range(world.gpus):
                used = np.full(world.t.size, share * world.card.vram)
                labels = {"host": host, "gpu": str(gpu)}
                world.extra.append(("hw_gpu_vram_used_bytes", labels, world.times, used))

    return plant


def errors(name: str, each: float) -> Plant:
    """One GPU counts so many errors at each look; old ones from before the job count nothing."""

    def plant(world: World) -> None:
        shape = (world.hosts, world.gpus, world.t.size)
        counts = world.errors.setdefault(name, np.zeros(shape))
        counts[1, 0, 0] += 40.0
        if each:
            counts[1, 0, world.after(BEGIN)] += each

    return plant


def busy(percent: float) -> Plant:
    """All GPUs are so much less used than the 92 % of a job at work."""

    def plant(world: World) -> None:
        world.util_extra -= 92.0 - percent

    return plant


def link(name: str, rate: float, *, everywhere: bool = False) -> Plant:
    """One RDMA port counts so many a second, or all do."""

    def plant(world: World) -> None:
        place = (slice(None), slice(None)) if everywhere else (1, 1)
        world.rdma[name][(*place, world.after(BEGIN))] += rate

    return plant


def down(world: World) -> None:
    """A port goes down, and comes back."""
    world.port_state[1, 1, world.after(BEGIN, BEGIN + 60)] = 0.0


def never_up(world: World) -> None:
    """A port that is not cabled."""
    world.port_state[1, 1] = 0.0


def host(name: str, rate: float) -> Plant:
    """One host counts so many a second."""

    def plant(world: World) -> None:
        world.rates.setdefault(name, np.zeros((world.hosts, world.t.size)))
        world.rates[name][1, world.after(BEGIN)] += rate

    return plant


def card(name: str, rate: float) -> Plant:
    """A network card counts so many errors a second."""

    def plant(world: World) -> None:
        world.rates.pop(name, None)
        for index, node in enumerate(world.names):
            growth = np.where(world.after(BEGIN) & (index == 1), rate * world.interval, 0.0)
            labels = {"host": node, "device": "eth0"}
            world.extra.append((name, labels, world.times, np.floor(np.cumsum(growth))))

    return plant


def both(*plants: Plant) -> Plant:
    """Several things in one job."""

    def plant(world: World) -> None:
        for one in plants:
            one(world)

    return plant


def slower(factor: float) -> Plant:
    """Every step takes longer."""

    def plant(world: World) -> None:
        world.slowdown[world.after(BEGIN)] *= factor

    return plant


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


RETX, ACK = "hw_rdma_tx_retx_pkts_total", "hw_rdma_tx_ack_timeout_total"
RETRY, CQE = "hw_rdma_req_tx_retry_excd_err_total", "hw_rdma_req_rx_cqe_err_total"
CNP, TCP = "hw_rdma_rx_cnp_pkts_total", "hw_tcp_retransmits_total"
BAD_LINK = both(link(RETX, 500), link(ACK, 2), slower(1.25))
ACCUSED = {"crash_at": 1_760_001_500.0, "heartbeat_timeout": 100.0, "accused": ("node002",)}


def old(world: World) -> None:
    """Ports with ninety million retransmits from before the job, and none in it."""
    world.rdma[RETX][1, :, 0] += 9e7 / world.interval


# What is asked of the answers


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


def _summary(name: str, folder: Path) -> None:
    (table,) = answer(GPU).tables
    assert name in dict(table.rows)
    assert "3 nodes, 6 GPUs" in table.title
    assert "no such row" not in dict(table.rows)


def _no_exclusion(folder: Path) -> None:
    found = answer(NET, host(TCP, 20))
    assert not found.culprits
    assert not [row for table in found.tables for row in table.rows if "node002" in row]
    jammed = answer(NET, both(host(TCP, 20), BAD_LINK))
    rows = [row for table in jammed.tables for row in table.rows]
    assert [row[0] for row in rows if "node002" in row] == ["2"]
    assert "Do not exclude nodes for TCP" in " ".join(jammed.next_steps)


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
    # GPU health
    Row("gpu.hot", "above 90 degrees", told(GPU, warmer(17), "above 90 °C", below=warmer(12))),
    Row(
        "gpu.throttles",
        "above 100 degrees it throttles",
        told(GPU, warmer(28), "it throttles", below=warmer(17)),
    ),
    Row(
        "gpu.spread",
        "power that differs by more than 50 W",
        told(GPU, weaker(0.9), "more than 50 W", below=weaker(0.99)),
    ),
    Row(
        "gpu.clock",
        "a core clock that drops at once",
        cause(GPU, clocked(0.7), "clock-drop", "node002", below=clocked(0.99)),
    ),
    Row(
        "gpu.memory",
        "more than 95 % of GPU memory",
        told(GPU, filled(0.96), "the next allocation may fail", below=filled(0.94)),
    ),
    Row(
        "gpu.hbm-ce",
        "correctable errors of memory",
        cause(GPU, errors("hw_gpu_ras_umc_ce_total", 1), "degrading-memory", "node002"),
    ),
    Row(
        "gpu.hbm-ce-one",
        "a single one is told, and accuses nobody",
        told(
            GPU,
            errors("hw_gpu_ras_umc_ce_total", 0.011),
            "a few errors",
            below=errors("hw_gpu_ras_umc_ce_total", 0),
        ),
    ),
    Row(
        "gpu.hbm-ue",
        "uncorrectable ones: the hardware playbook",
        told(
            GPU,
            errors("hw_gpu_ras_umc_ue_total", 1),
            "uncorrectable errors",
            "node-hardware-failure",
            below=errors("hw_gpu_ras_umc_ue_total", 0),
        ),
    ),
    Row(
        "gpu.xgmi-ce",
        "correctable errors of a link",
        cause(GPU, errors("hw_gpu_ras_xgmi_ce_total", 1), "degrading-link", "node002"),
    ),
    Row(
        "gpu.pcie-ce",
        "PCIe errors that go on",
        cause(
            GPU,
            errors("hw_gpu_pcie_correctable_total", 5),
            "degrading-link",
            "node002",
            below=errors("hw_gpu_pcie_correctable_total", 0),
        ),
    ),
    Row(
        "gpu.pcie-nonfatal",
        "and non-fatal ones",
        told(GPU, errors("hw_gpu_pcie_nonfatal_total", 1), "non-fatal PCIe errors within the job"),
    ),
    Row(
        "gpu.idle", "less than 80 % in training", told(GPU, busy(70), "below 80 %", below=busy(88))
    ),
    *(
        Row(
            f"gpu.summary-{name.lower().replace(' ', '-')}",
            f"the summary's {name}",
            Check("diagnose: summary", partial(_summary, name)),
        )
        for name in (
            "Temperature",
            "Power",
            "Core clock",
            "VRAM",
            "Utilisation",
            "Memory errors",
            "PCIe errors",
            "Anomalous GPUs",
        )
    ),
    # Network health
    Row(
        "net.tcp",
        "TCP retransmits above 10 a second",
        told(NET, host(TCP, 20), "TCP retransmits up to", below=host(TCP, 2)),
    ),
    Row(
        "net.tcp-innocent",
        "which slow no collective where RDMA carries them",
        clear(host(TCP, 2000)),
    ),
    Row(
        "net.retx",
        "RDMA retransmits that last",
        told(NET, link(RETX, 50), "RDMA retransmits on rdma1/1 of node002"),
    ),
    Row(
        "net.ack",
        "time-outs: a link or a switch",
        told(NET, link(ACK, 1), "ACK timeouts on rdma1/1 of node002", "a link or a switch"),
    ),
    Row(
        "net.port",
        "a port that goes down",
        cause(NET, down, "rdma-link", "node002", below=never_up),
    ),
    Row(
        "net.congestion",
        "notifications on many nodes: the switch",
        cause(NET, link(CNP, 2000, everywhere=True), "congestion"),
    ),
    Row(
        "net.retry",
        "retries that run out: packets are lost for good",
        cause(NET, link(RETRY, 0.1), "rdma-link", "node002"),
    ),
    Row(
        "net.cqe",
        "completions with errors",
        told(NET, link(CQE, 0.1), "completion errors on rdma1/1 of node002", "a link or a switch"),
    ),
    Row(
        "net.rx",
        "a card's receive errors",
        cause(
            NET,
            card("hw_net_rx_errors_total", 5),
            "nic-errors",
            "node002",
            below=card("hw_net_rx_errors_total", 0),
        ),
    ),
    Row(
        "net.tx",
        "a card's transmit errors",
        cause(
            NET,
            card("hw_net_tx_errors_total", 5),
            "nic-errors",
            "node002",
            below=card("hw_net_tx_errors_total", 0),
        ),
    ),
    Row(
        "net.abort",
        "connections given up",
        told(NET, host("hw_tcp_abort_on_timeout_total", 0.2), "connections aborted on timeout"),
    ),
    Row(
        "net.slow",
        "a bad link slows every step of all",
        cause(NET, BAD_LINK, "rdma-link", "node002", below=slower(1.25)),
    ),
    Row("net.device", "with its device and port", told(NET, BAD_LINK, "rdma1/1 of node002")),
    Row("net.boot", "counts from before the job say nothing", clear(old)),
    Row(
        "net.phases",
        "links that are bad by turns, and steps that follow them",
        scenario("network-phases"),
    ),
    Row("net.recovery", "steps are fast again when it ends", scenario("network-transient")),
    Row(
        "net.transient",
        "a storm of TCP beside it misleads nobody",
        scenario("network-beside-a-storm"),
    ),
    *(
        Row(f"net.priority-{number}", what, told(NET, plant, word))
        for number, what, plant, word in (
            (1, "exhausted retries go first", link(RETRY, 0.1), "packets are lost for good"),
            (
                2,
                "retransmits with time-outs next",
                both(link(RETX, 50), link(ACK, 1)),
                "retransmits with errors",
            ),
            (
                3,
                "congestion is a switch's rather than a node's",
                link(CNP, 2000, everywhere=True),
                "the fabric, not a node",
            ),
            (4, "TCP alone excludes nobody", host(TCP, 20), "not the collectives' path"),
        )
    ),
    Row(
        "net.exclude-never",
        "for TCP no node is excluded",
        Check("diagnose: network-health", _no_exclusion),
    ),
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
