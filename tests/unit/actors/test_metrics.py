"""The agent's and the coordinator's own metrics."""

from __future__ import annotations

import msgspec

from ray_sentinel.actors import metrics
from ray_sentinel.actors.coordinator.metrics import coordinator_families
from ray_sentinel.actors.names import PROTOCOL
from ray_sentinel.model.exposition import series_text
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.model.progress import Exit, ProcessState, Progress, RankSnapshot
from ray_sentinel.model.samples import SeriesKey
from ray_sentinel.model.status import CoordinatorStatus
from ray_sentinel.version import __version__
from tests.support.incidents import an_incident


def rank(number: int, *, attempt: int = 0, start: int = 1, job: str = "j") -> Rank:
    return Rank(
        id=RankId(job, attempt, number),
        process=ProcessId("h", 100 + number, start),
        node="n",
        world_size=4,
    )


def seen(number: int, progress: Progress | None = None, **more: int) -> RankSnapshot:
    return RankSnapshot(
        rank=rank(number, **more), process=ProcessState(state="S"), progress=progress
    )


def series(families: tuple[Family, ...]) -> dict[str, float]:
    return {
        series_text(sample.name, sample.labels): sample.value
        for family in families
        for sample in family.samples
    }


def test_progress_becomes_train_series() -> None:
    progress = Progress(
        step=7, step_ended_at=90.0, step_seconds=0.5, phase="train", scalars={"loss": 2.5}
    )
    assert series(metrics.train_families([seen(3, progress)], [], now=100.0)) == {
        'train_rank_alive{job="j",rank="3"}': 1.0,
        'train_step{job="j",rank="3"}': 7.0,
        'train_step_seconds{job="j",rank="3"}': 0.5,
        'train_step_age_seconds{job="j",rank="3"}': 10.0,
        'train_phase{job="j",rank="3",phase="train"}': 1.0,
        'train_scalar{job="j",rank="3",name="loss"}': 2.5,
        'train_world_size{job="j"}': 4.0,
    }


def test_what_is_not_known_is_absent() -> None:
    found = series(metrics.train_families([seen(0, Progress())], [], now=1.0))
    assert set(found) == {'train_rank_alive{job="j",rank="0"}', 'train_world_size{job="j"}'}
    assert set(series(metrics.train_families([seen(0)], [], now=1.0))) == set(found)


def test_the_size_of_a_job_is_told_though_one_of_its_ranks_does_not_know_it() -> None:
    other = seen(1)
    unsure = msgspec.structs.replace(
        other, rank=msgspec.structs.replace(other.rank, world_size=None)
    )
    found = series(metrics.train_families([seen(0), unsure], [], now=1.0))
    assert found['train_world_size{job="j"}'] == 4.0


def test_an_ended_rank_is_not_alive_unless_its_next_attempt_is() -> None:
    gone = Exit(rank=rank(1), at=5.0, order=1)
    assert series(metrics.train_families([], [gone], now=6.0)) == {
        'train_rank_alive{job="j",rank="1"}': 0.0
    }
    again = series(metrics.train_families([seen(1, attempt=1)], [gone], now=6.0))
    assert again['train_rank_alive{job="j",rank="1"}'] == 1.0


def test_of_two_attempts_of_a_rank_one_series_is_served() -> None:
    old, new = seen(0, Progress(step=9)), seen(0, Progress(step=1), attempt=1)
    for order in ([old, new], [new, old]):
        assert series(metrics.train_families(order, [], 0.0))['train_step{job="j",rank="0"}'] == 1


def incident(number: int, state: str, kind: str = "gil-held") -> Incident:
    return an_incident(id=str(number), kind=kind, state=state)


def test_incidents_are_counted_and_the_open_ones_named() -> None:
    incidents = [incident(1, "resolved"), incident(2, "captured"), incident(3, "captured", "asked")]
    work = CoordinatorStatus(
        reports_due_per_second=1.5,
        relays=2,
        relays_wanted=3,
        memory_bytes=1 << 28,
        memory_limit_bytes=2 << 30,
        shed={"history": 2},
        series_bytes=1 << 20,
        series_limit_bytes=1 << 28,
        log_waiting_bytes=500,
        log_waiting_limit_bytes=1 << 26,
        log_missing=2,
    )
    told = coordinator_families(
        work, incidents, nodes=3, unwatched=0, reports=70, relayed=30, last_cycle=None
    )
    assert series(told) == {
        "ray_sentinel_agent_nodes": 3.0,
        "ray_sentinel_nodes_unwatched": 0.0,
        "ray_sentinel_reports_total": 70.0,
        "ray_sentinel_relayed_reports_total": 30.0,
        "ray_sentinel_relays": 2.0,
        "ray_sentinel_relays_wanted": 3.0,
        "ray_sentinel_reports_due_per_second": 1.5,
        'ray_sentinel_memory_bytes{process="coordinator"}': float(1 << 28),
        'ray_sentinel_memory_limit_bytes{process="coordinator"}': float(2 << 30),
        'ray_sentinel_memory_shed_total{part="history"}': 2.0,
        'ray_sentinel_memory_shed_total{part="incidents"}': 0.0,
        'ray_sentinel_memory_shed_total{part="pulse"}': 0.0,
        'ray_sentinel_memory_shed_total{part="series"}': 0.0,
        "ray_sentinel_series_bytes": float(1 << 20),
        "ray_sentinel_series_limit_bytes": float(1 << 28),
        "ray_sentinel_event_log_waiting_bytes": 500.0,
        "ray_sentinel_event_log_waiting_limit_bytes": float(1 << 26),
        "ray_sentinel_event_log_missing_total": 2.0,
        'ray_sentinel_incidents_total{kind="gil-held",severity="critical"}': 2.0,
        'ray_sentinel_incident_active{job="j",kind="gil-held"}': 1.0,
    }


def test_an_agent_tells_what_it_lost_before_it_loses_anything() -> None:
    """So that the first of it is a growth."""
    lost = {"exits": 0, "events": 3}
    told = series(metrics.agent_families(1 << 20, 1 << 30, None, lost, {}, None))
    assert told == {
        f'ray_sentinel_build_info{{version="{__version__}",protocol="{PROTOCOL}"}}': 1.0,
        'ray_sentinel_memory_bytes{process="agent"}': float(1 << 20),
        'ray_sentinel_memory_limit_bytes{process="agent"}': float(1 << 30),
        'ray_sentinel_agent_lost_total{what="exits"}': 0.0,
        'ray_sentinel_agent_lost_total{what="events"}': 3.0,
    }


def test_key_series_are_bounded() -> None:
    disk = Metric("hw_disk_free_bytes", "gauge", "", ("mount",))
    other = Metric("hw_other", "gauge", "")
    families = [
        Family(other, (other(1.0),)),
        Family(disk, (disk(5.0, 'a"b\\c\nd'),)),
        Family(disk, tuple(disk(1.0, str(i)) for i in range(2 * metrics.MOST_KEYS))),
    ]
    found = metrics.key_samples(families)
    assert found[SeriesKey("hw_disk_free_bytes", (("mount", 'a"b\\c\nd'),))] == 5.0
    assert len(found) == metrics.MOST_KEYS
    assert {key.name for key in found} == {"hw_disk_free_bytes"}


def test_a_name_that_utf_8_cannot_say_can_be_sent() -> None:
    disk = Metric("hw_disk_free_bytes", "gauge", "", ("mount",))
    (name,) = metrics.key_samples([Family(disk, (disk(5.0, "/mnt/\udcff"),))])
    assert msgspec.msgpack.encode(name) == msgspec.msgpack.encode(
        ["hw_disk_free_bytes", [["mount", "/mnt/\\udcff"]]]
    )


def test_what_is_no_number_stays_out_of_the_log() -> None:
    from ray_sentinel.actors.agent.node_monitor import finite

    progress = Progress(step=1, scalars={"loss": float("nan"), "lr": 0.1})
    kept = finite(seen(0, progress)).progress
    assert kept is not None
    assert kept.scalars == {"lr": 0.1}
    load = Metric("hw_load1", "gauge", "")
    assert metrics.key_samples([Family(load, (load(float("inf")),))]) == {}


def test_thousands_of_links_do_not_push_a_server_s_requests_out() -> None:
    link = Metric("hw_gpu_nvlink_errors_total", "counter", "", ("link",))
    requests = Metric("server_requests", "gauge", "", ("state",))
    found = metrics.key_samples(
        [
            Family(link, tuple(link(0.0, str(i)) for i in range(2 * metrics.MOST_KEYS))),
            Family(requests, (requests(3.0, "waiting"),)),
        ]
    )
    assert found[SeriesKey("server_requests", (("state", "waiting"),))] == 3.0
