"""How two jobs are compared: over which steps, by which measures, and what a difference means."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.cli.commands.compare import markdown
from ray_sentinel.diagnose.comparison import Side, compare, config_difference, overlap
from ray_sentinel.diagnose.logs import LogFacts, LoggedStep
from ray_sentinel.diagnose.logtext import MainLog
from tests.support.inventory.planted import RETX, host, link, slower
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import Plant, case, nothing
from tests.support.tsdb_scenarios.world import World


def side(plant: Plant = nothing, **logs: object) -> Side:
    """One of two jobs that are compared."""
    return Side(title="job", case=case(plant), logs=LogFacts(**logs))  # type: ignore[arg-type]


def threads(world: World) -> None:
    """Seventeen runnable threads more on every host, and steps that are a little slower."""
    world.gauges["hw_procs_running"] += 17.0
    world.slowdown *= 1.05


def configured(name: str) -> Check:
    """The parameter is compared."""

    def run(folder: Path) -> None:
        log, other = MainLog("a"), MainLog("b")
        log.feed([f"PASSTHROUGH_ARGS: {name}=1 steps=500", "NNODES=4"])
        other.feed([f"PASSTHROUGH_ARGS: {name}=2 steps=500", "NNODES=4"])
        assert config_difference(log.as_facts(), other.as_facts()) == {name: ("1", "2")}

    return Check("compare: configuration", run)


def differs(plant: Plant, title: str) -> Check:
    """The measure stands out between two jobs of which one has it."""

    def run(folder: Path) -> None:
        found = {one.title: one for one in compare(side(), side(plant)).deltas}
        assert found[title].significant
        calm = {one.title: one for one in compare(side(), side()).deltas}
        assert title not in calm or not calm[title].significant

    return Check("compare", run)


def _overlap(folder: Path) -> None:
    def job(*steps: int) -> Side:
        logs = LogFacts(steps=tuple(LoggedStep(step=float(step)) for step in range(*steps)))
        return Side(title="x", case=None, logs=logs)

    assert overlap(job(0, 501), job(200, 701)) == (200.0, 500.0)
    assert overlap(job(0, 100), job(200, 700)) is None


def _leak(folder: Path) -> None:
    found = compare(side(), side(threads))
    assert "17 runnable threads" in found.root_cause
    assert "runnable threads" not in compare(side(), side()).root_cause


def _restored(folder: Path) -> None:
    how = {"enable_single_replica_ckpt_restoring": "true"}
    restored = side(threads, config=how, restored_step=200.0, init_waves={"node001": 3})
    found = compare(side(config=how, init_waves={"node001": 2}), restored)
    assert "restored from a single replica" in found.root_cause
    assert any("broadcast_one_replica_to_all" in place for place in found.source_trace)
    assert any("2 waves there, 3 here" in note for note in found.notes)
    fresh = compare(side(config=how), side(threads, config=how))
    assert "single replica" not in fresh.root_cause, "the setting alone restores nothing"


def _modules(folder: Path) -> None:
    notes = compare(side(modules=20), side(modules=26)).notes
    assert any("20 modules there, 26 here" in note for note in notes)
    assert not any("modules" in note for note in compare(side(modules=20), side(modules=20)).notes)


def _tcp_innocent(folder: Path) -> None:
    found = compare(side(), side(both_slow_and_tcp))
    assert "TCP" not in found.root_cause.split(";", 1)[-1]
    found = compare(side(), side(both_slow_and_rdma))
    assert "RDMA" in found.root_cause


def both_slow_and_tcp(world: World) -> None:
    """Slower, with TCP retransmits beside it."""
    world.slowdown *= 1.2
    host("hw_tcp_retransmits_total", 2000)(world)


def both_slow_and_rdma(world: World) -> None:
    """Slower, with RDMA retransmits."""
    world.slowdown *= 1.2
    world.rdma[RETX][1, 1] += 500.0


def _report(folder: Path) -> None:
    text = markdown(compare(side(), side(threads)))
    places = [
        text.index(title)
        for title in (
            "## Multi-Job Comparison",
            "### Config differences",
            "### Overlapping step range",
            "### Metric comparison",
            "### Root cause",
        )
    ]
    assert places == sorted(places)
    for column in ("Metric", "Job A", "Job B", "Delta", "Likely cause"):
        assert column in text


ROWS = [
    *(
        Row(f"compare.{name}", f"{name} differs", configured(name))
        for name in (
            "per_device_batch_size",
            "max_target_length",
            "remat_policy",
            "quantization",
            "attention",
            "ici_fsdp_parallelism",
            "dcn_data_parallelism",
            "enable_checkpointing",
            "checkpoint_period",
            "async_checkpointing",
            "load_balance_loss_weight",
            "_env_NCCL_DEBUG",
        )
    ),
    Row("compare.overlap", "only steps that both did", Check("compare: steps", _overlap)),
    Row("compare.pace", "step time", differs(slower(1.3), "step time")),
    Row("compare.rdma", "RDMA retransmits", differs(link(RETX, 500), "RDMA retransmits")),
    Row("compare.threads", "runnable threads", differs(threads, "runnable threads")),
    Row(
        "compare.tcp",
        "TCP retransmits",
        differs(host("hw_tcp_retransmits_total", 2000), "TCP retransmits"),
    ),
    Row(
        "compare.tcp-innocent",
        "which explain no difference in speed; those of RDMA do",
        Check("compare: root", _tcp_innocent),
    ),
    Row(
        "compare.leak",
        "threads more on all hosts: left behind by software",
        Check("compare: root", _leak),
    ),
    Row(
        "compare.restored",
        "by a restore from one replica, which only the log can tell",
        Check("compare: root", _restored),
    ),
    Row("compare.modules", "modules that were compiled", Check("compare: notes", _modules)),
    Row("compare.report", "the parts of the report", Check("compare: report", _report)),
]
