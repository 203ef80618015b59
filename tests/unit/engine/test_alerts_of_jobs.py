"""Which alerts a job's status shows: its own, and those of its hosts but for other jobs' GPUs."""

from __future__ import annotations

from msgspec.structs import replace

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, RankSnapshot, Snapshot

NOW = 1000.0


def tell(engine: Engine, node: Node, *ranks: tuple[str, int, str]) -> None:
    """``ranks``: job, number and GPU."""
    seen = tuple(
        RankSnapshot(
            rank=Rank(
                id=RankId(job, 0, number),
                process=ProcessId(node.id, 100 + 10 * number + len(job), 1),
                node=node.id,
                world_size=2,
                gpus=(gpu,),
            ),
            process=ProcessState(state="S"),
        )
        for job, number, gpu in ranks
    )
    snapshot = Snapshot(node=node, time=NOW, sequence=1, ranks=seen)
    engine.handle(SnapshotReceived(time=NOW, snapshot=snapshot))


def test_a_job_is_shown_its_own_alerts_and_those_of_its_hosts_but_of_no_other_job_s_gpu() -> None:
    engine = Engine()
    tell(engine, Node(id="n1", host="a", address=""), ("one", 0, "0"), ("other", 0, "1"))
    # Another node on the same host, as two raylets on one machine are.
    tell(engine, Node(id="n2", host="a", address=""), ("one", 1, "2"), ("other", 1, "3"))
    tell(engine, Node(id="n3", host="b", address=""), ("third", 0, "0"))
    places = [("a", gpu) for gpu in ("", "0", "1", "2", "3", "7")] + [("b", "0"), ("c", "")]
    alert = Alert(rule="r", severity="warning", text="", since=NOW)
    alerts = [replace(alert, host=host, gpu=gpu) for host, gpu in places]
    alerts += [replace(alert, job=job) for job in ("one", "x")]
    engine.state.alerts.open = {one.key: (one, NOW) for one in alerts}
    shown = {
        job.job: {(one.job, one.host, one.gpu): one.ranks for one in job.alerts}
        for job in engine.status(NOW).jobs
    }
    assert shown == {
        "one": {
            ("", "a", ""): (),
            ("", "a", "0"): (0,),
            ("", "a", "2"): (1,),
            ("", "a", "7"): (),
            ("one", "", ""): (),
        },
        "other": {
            ("", "a", ""): (),
            ("", "a", "1"): (0,),
            ("", "a", "3"): (1,),
            ("", "a", "7"): (),
        },
        "third": {("", "b", "0"): (0,)},
    }
