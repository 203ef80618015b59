"""Deaths in Ray jobs: the first that nobody wanted is named, and nobody who ended because of it."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.actions import AnyAction, Capture
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    CaptureDone,
    RayDeathsTold,
    RayTableTold,
    SnapshotReceived,
    Tick,
)
from ray_sentinel.engine.jobs import FORGET_SECONDS
from ray_sentinel.engine.ray.deaths import FORGET_SECONDS as DEATHS_SECONDS
from ray_sentinel.engine.state import unpacked
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.incident import Culprit, Incident, Writer
from ray_sentinel.model.progress import Exit, ProcessState, RankSnapshot, RayExit, Snapshot
from ray_sentinel.model.ray_calls import RayActor, RayCalls, RayDriver
from ray_sentinel.model.ray_deaths import RayDeath

JOB = "01000000"
NODE = Node(id="n0", host="one", address="10.0.0.1")
TRACEBACK = "Traceback (most recent call last):"
DRIVER = RayDriver(job=JOB, pid=10, address="10.0.0.1", name="train_rl-1")


def actor(kind: str, number: int, pid: int) -> RayActor:
    return RayActor(id=f"{pid:032x}", job=JOB, kind=kind, number=number, node="n0", pid=pid)


ACTORS = (
    actor("Trainer", 0, 20),
    actor("Trainer", 1, 21),
    actor("Rollout", 0, 30),
    actor("Rollout", 1, 31),
)


def rank(number: int) -> Rank:
    return Rank(
        id=RankId("train_rl-1.Trainer", 0, number),
        process=ProcessId("one", 20 + number, 1),
        node="n0",
        world_size=2,
    )


def dead(pid: int, cause: str, *, at: float = 0.0, **more: object) -> RayDeath:
    """The death of the actor with this pid, or of the driver (``pid`` 10)."""
    found = next((one for one in ACTORS if one.pid == pid), None)
    fields = {
        "what": "actor" if found else "driver",
        "id": found.id if found else JOB,
        "job": JOB,
        "label": found.label if found else "driver",
        "role": found.kind if found else "driver",
        "node": found.node if found else "",
        "address": "10.0.0.1",
        "pid": pid,
        "at": at,
        "cause": cause,
        "witness": "control store",
        **more,
    }
    return msgspec.convert(fields, RayDeath)


class Cluster:
    """A Ray job of two trainers, which are ranks, and two rollouts, on one node."""

    def __init__(self, table: tuple[RayActor, ...] = ACTORS) -> None:
        """``table``: the actors that Ray lists."""
        self.engine = Engine()
        self.actions: list[AnyAction] = []
        self.now = 1000.0
        self.sequence = 0
        self.living = {20, 21}
        self.ray_exits: list[RayExit] = []
        self.exits: list[Exit] = []
        self.cut = False
        self._feed(RayTableTold(time=self.now, table=RayCalls(drivers=(DRIVER,), actors=table)))
        self.wait(12)

    def _feed(self, event: object) -> None:
        self.actions += self.engine.handle(event)  # type: ignore[arg-type]
        if self.cut:
            self.engine = Engine(state=unpacked(self.engine.state.packed())[0])

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.sequence += 1
            ranks = tuple(
                RankSnapshot(rank=rank(pid - 20), process=ProcessState(state="S"))
                for pid in (20, 21)
                if pid in self.living
            )
            self._feed(
                SnapshotReceived(
                    time=self.now,
                    snapshot=Snapshot(
                        node=NODE,
                        time=self.now,
                        sequence=self.sequence,
                        ranks=ranks,
                        exits=tuple(self.exits),
                        ray_exits=tuple(self.ray_exits),
                    ),
                )
            )
            self._feed(Tick(time=self.now))

    def end(
        self, pid: int, *, code: int | None = None, signal: int | None = None, said: str = ""
    ) -> None:
        """The agent sees a process end; a trainer is a rank too."""
        process = ProcessId("one", pid, 1)
        self.ray_exits.append(
            RayExit(process=process, at=self.now, code=code, signal=signal, last_output=said)
        )
        if pid in self.living:
            self.living.remove(pid)
            self.exits.append(
                Exit(
                    rank=rank(pid - 20),
                    at=self.now,
                    order=len(self.exits) + 1,
                    code=code,
                    signal=signal,
                    was_attached=True,
                )
            )

    def report(self, *deaths: RayDeath) -> None:
        self._feed(RayDeathsTold(time=self.now, deaths=deaths))
        if any(death.what == "driver" for death in deaths):
            self._feed(RayTableTold(time=self.now, table=RayCalls()))

    def take_capture(self) -> None:
        """The evidence for the only incident has come."""
        (incident,) = self.engine.incidents()
        self._feed(CaptureDone(time=self.now, incident=incident.id, bundle="/b"))

    def kill_driver(self) -> None:
        """Kill the driver by SIGKILL. Ray ends all actors, and reports both."""
        self.end(10, signal=9)
        self.report(dead(10, "signal", at=self.now))
        self.end_all("driver-ended")
        self.wait(8)

    def end_all(self, cause: str) -> None:
        """Ray ends all actors."""
        for pid in (20, 21, 30, 31):
            self.end(pid, signal=9)
        self.wait(1)
        self.report(*(dead(pid, cause, at=self.now) for pid in (20, 21, 30, 31)))

    def named(self) -> list[tuple[str, str, list[str], str]]:
        """Job, kind, culprits and severity of each incident."""
        return [(one.job, one.kind, _labels(one), one.severity) for one in self.engine.incidents()]


def _culprits(incident: Incident) -> tuple[Culprit, ...]:
    return incident.verdict.culprits if incident.verdict else ()


def _labels(incident: Incident) -> list[str]:
    return [one.label for one in _culprits(incident)]


@pytest.fixture(params=[False, True], ids=["whole", "cut"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Also with an engine that is restored from its snapshot after each event."""
    made = Cluster()
    made.cut = request.param
    return made


def test_a_driver_that_was_killed_is_named_and_none_of_its_actors(cluster: Cluster) -> None:
    cluster.kill_driver()
    assert cluster.named() == [("train_rl-1", "driver-dead", ["driver"], "critical")]
    (culprit,) = _culprits(cluster.engine.incidents()[0])
    assert (culprit.host, culprit.pid, culprit.rank) == ("one", 10, None)
    assert culprit.reason == "was killed: killed by SIGKILL"


def test_a_call_that_ended_the_driver_is_named_also_where_its_actors_end_was_told_first(
    cluster: Cluster,
) -> None:
    failed_at = cluster.now
    cluster.end(10, code=1)
    cluster.end(30)
    cluster.wait(1)
    cluster.report(dead(30, "driver-ended", at=cluster.now))
    cluster.wait(1)
    call = dead(30, "exception", at=failed_at, method="Rollout.generate", detail="KeyError: 3")
    cluster.report(call, dead(10, "exception", at=failed_at + 0.2))
    cluster.wait(8)
    assert [(kind, labels) for _, kind, labels, _ in cluster.named()] == [
        ("actor-dead", ["Rollout 0"])
    ]


def test_a_death_has_one_incident_for_as_long_as_it_is_remembered(cluster: Cluster) -> None:
    cluster.kill_driver()
    cluster.take_capture()
    cluster.wait(120)
    (incident,) = cluster.engine.incidents(everything=True)
    assert (incident.kind, incident.state) == ("driver-dead", "resolved")


def test_echoes_of_a_driver_stay_echoes_for_as_long_as_their_job_is_remembered(
    cluster: Cluster,
) -> None:
    cluster.end(10, signal=9)
    cluster.report(dead(10, "signal", at=cluster.now))
    for pid in (20, 21):
        cluster.end(pid, code=1)
    cluster.report(*(dead(pid, "driver-ended", at=cluster.now) for pid in (20, 21)))
    cluster.wait(8)
    cluster.take_capture()
    cluster.wait(DEATHS_SECONDS + 20)
    assert [one.kind for one in cluster.engine.incidents(everything=True)] == ["driver-dead"]
    cluster.wait(FORGET_SECONDS)
    assert cluster.engine.view.jobs == {}
    cluster.wait(1)
    book = cluster.engine.view.deaths
    assert not book.told
    assert not book.ended
    assert not any(book.members.values())


def test_a_rank_that_has_the_pid_of_a_spared_one_is_not_spared(cluster: Cluster) -> None:
    cluster.kill_driver()
    cluster.wait(DEATHS_SECONDS + 20)
    book = cluster.engine.view.deaths
    assert book.spares("n0", ProcessId("one", 20, 1))
    assert not book.spares("n0", ProcessId("one", 20, 2))
    assert not book.spares("n1", ProcessId("one", 20, 1))


def test_a_rank_that_got_ray_kill_is_not_accused_hours_later_either(cluster: Cluster) -> None:
    cluster.end(20, code=1)
    cluster.wait(1)
    cluster.report(dead(20, "killed-by-ray", at=cluster.now))
    cluster.wait(8)
    cluster.now += 3600
    cluster.wait(8)
    assert [one for one in cluster.engine.incidents() if one.kind == "rank-dead"] == []


def test_the_record_of_a_job_goes_some_time_after_the_job(cluster: Cluster) -> None:
    cluster.kill_driver()
    cluster.take_capture()
    assert ("train_rl-1", 0) in cluster.engine.view.jobs
    for _ in range(8):
        cluster.now += FORGET_SECONDS / 3
        cluster.wait(1)
    assert cluster.engine.view.jobs == {}


def test_a_driver_that_raised_is_named_with_its_exception(cluster: Cluster) -> None:
    cluster.end(10, code=1)
    cluster.report(dead(10, "exception", at=cluster.now, detail="ValueError: step 7"))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    (incident,) = cluster.engine.incidents()
    assert (incident.kind, _labels(incident)) == ("driver-dead", ["driver"])
    assert "ValueError: step 7" in incident.summary


@pytest.mark.parametrize("cause", ["finished", "stopped", "unknown"])
def test_a_driver_that_ended_as_somebody_wanted_is_no_incident(
    cluster: Cluster, cause: str
) -> None:
    if cause != "unknown":
        cluster.end(10, code=0)
    cluster.report(dead(10, cause, at=cluster.now))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == []


@pytest.mark.parametrize("how", [{"signal": 2}, {"signal": 15}, {"code": 130}, {"code": 15}])
def test_ctrl_c_and_sigterm_are_told_from_an_exception_by_the_exit_status(
    cluster: Cluster, how: dict[str, int]
) -> None:
    cluster.end(10, **how)
    cluster.report(dead(10, "exception", at=cluster.now, detail="time.sleep(60)"))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == []


def test_a_call_that_raised_and_ended_the_driver_is_the_first_cause(cluster: Cluster) -> None:
    raised = dead(
        30, "exception", at=cluster.now, method="Rollout.generate", detail="KeyError: 'x'"
    )
    cluster.end(10, code=1)
    cluster.report(raised, dead(10, "exception", at=cluster.now + 0.1))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == [("train_rl-1", "actor-dead", ["Rollout 0"], "critical")]
    (culprit,) = _culprits(cluster.engine.incidents()[0])
    assert (culprit.role, culprit.method) == ("Rollout", "Rollout.generate")


def test_a_rank_whose_method_raised_is_named_by_its_number(cluster: Cluster) -> None:
    raised = dead(21, "exception", at=cluster.now, method="Trainer.update", detail="boom")
    cluster.end(10, code=1)
    cluster.report(raised, dead(10, "exception", at=cluster.now + 0.1))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == [("train_rl-1", "rank-dead", ["rank 1"], "critical")]


def test_a_rank_that_left_in_peace_amid_a_call_is_named_once(cluster: Cluster) -> None:
    cluster.end(21, code=0)
    cluster.report(dead(21, "exited", at=cluster.now, detail="exited with status 0"))
    cluster.end(10, code=1)
    cluster.report(dead(10, "exception", at=cluster.now + 0.6))
    for pid in (20, 30, 31):
        cluster.end(pid, code=1)
    cluster.report(*(dead(pid, "driver-ended", at=cluster.now + 0.6) for pid in (20, 30, 31)))
    cluster.wait(20)
    assert cluster.named() == [("train_rl-1", "rank-dead", ["rank 1"], "critical")]


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_left_and_a_peer_that_failed_by_it_make_one_incident(
    cluster: Cluster, code: int
) -> None:
    cluster.end(21, code=code)
    cluster.wait(0.5)
    cluster.end(20, code=1)
    told = "exited with status {}"
    cluster.report(
        dead(21, "exited", at=cluster.now - 0.5, detail=told.format(code)),
        dead(20, "exited", at=cluster.now, detail=told.format(1)),
    )
    cluster.end(10, code=1)
    cluster.report(dead(10, "exception", at=cluster.now + 0.1))
    cluster.wait(20)
    assert [one.kind for one in cluster.engine.incidents()] == ["rank-dead"]


def test_an_actor_that_was_killed_and_the_job_with_it(cluster: Cluster) -> None:
    cluster.end(31, signal=9)
    cluster.report(dead(31, "signal", at=cluster.now))
    cluster.wait(0.5)
    cluster.end(10, code=1)
    cluster.report(dead(10, "exception", at=cluster.now))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == [("train_rl-1", "actor-dead", ["Rollout 1"], "critical")]


def test_an_actor_that_died_while_its_job_goes_on_is_a_warning(cluster: Cluster) -> None:
    cluster.end(31, code=3)
    cluster.report(dead(31, "signal", at=cluster.now))
    cluster.wait(5)
    assert cluster.named() == [("train_rl-1", "actor-dead", ["Rollout 1"], "warning")]
    (culprit,) = _culprits(cluster.engine.incidents()[0])
    assert culprit.reason == "left: exited with status 3"
    (capture,) = [action for action in cluster.actions if isinstance(action, Capture)]
    process = ProcessId("one", 31, 1)
    assert capture.members == (Writer(process=process, node="n0", label="Rollout 1"),)


def test_that_the_job_ended_with_it_is_told_however_late_it_is_known(cluster: Cluster) -> None:
    cluster.report(dead(31, "signal", at=cluster.now))
    cluster.wait(5)
    cluster.take_capture()
    cluster.report(dead(10, "exception", at=cluster.now), dead(30, "driver-ended"))
    cluster.wait(5)
    (incident,) = cluster.engine.incidents()
    assert (incident.severity, incident.state) == ("critical", "resolved")
    assert "and the job with it" in incident.summary


def test_that_the_job_ended_well_without_it_makes_it_no_worse(cluster: Cluster) -> None:
    cluster.report(dead(31, "signal", at=cluster.now))
    cluster.wait(5)
    cluster.report(dead(10, "finished", at=cluster.now))
    cluster.wait(5)
    assert cluster.named() == [("train_rl-1", "actor-dead", ["Rollout 1"], "warning")]


@pytest.mark.parametrize(
    ("cause", "restarts"),
    [("signal", True), ("killed-by-ray", False), ("finished", False), ("owner-ended", False)],
)
def test_who_is_started_again_or_was_wanted_to_end_is_no_incident(
    cluster: Cluster, cause: str, restarts: bool
) -> None:
    cluster.end(31, signal=9)
    cluster.report(dead(31, cause, at=cluster.now, restarts=restarts))
    cluster.wait(8)
    assert cluster.named() == []


def test_a_rank_that_got_ray_kill_is_not_accused(cluster: Cluster) -> None:
    cluster.end(20, signal=9)
    cluster.wait(1)
    cluster.report(dead(20, "killed-by-ray", at=cluster.now))
    cluster.wait(8)
    assert cluster.named() == []


def test_a_rank_that_was_killed_is_named_by_its_own_job_alone(cluster: Cluster) -> None:
    cluster.end(20, signal=9)
    cluster.wait(1)
    cluster.report(dead(20, "signal", at=cluster.now))
    cluster.wait(4)
    assert cluster.named() == [("train_rl-1.Trainer", "rank-dead", ["rank 0"], "critical")]


def test_a_rank_whose_cause_nobody_tells_is_named_within_five_seconds(cluster: Cluster) -> None:
    cluster.end(20, signal=9)
    cluster.wait(5)
    assert cluster.named() == [("train_rl-1.Trainer", "rank-dead", ["rank 0"], "critical")]


def test_a_rank_that_is_newer_than_rays_table_waits_for_its_cause_too() -> None:
    cluster = Cluster(tuple(msgspec.structs.replace(one, pid=0, node="") for one in ACTORS))
    for pid in (20, 21):
        cluster.end(pid, code=1)
    cluster.wait(2.5)
    assert cluster.named() == []
    cluster.report(dead(10, "stopped"), *(dead(pid, "driver-ended") for pid in (20, 21)))
    cluster.wait(10)
    assert cluster.named() == []


def test_a_driver_that_left_with_a_status_of_failure_is_named(cluster: Cluster) -> None:
    cluster.end(10, code=3)
    cluster.report(dead(10, "finished", at=cluster.now))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == [("train_rl-1", "driver-dead", ["driver"], "critical")]


def test_a_driver_that_crashed_when_it_had_left_ray_already_is_no_incident(
    cluster: Cluster,
) -> None:
    cluster.end(10, signal=11)
    cluster.report(dead(10, "finished", at=cluster.now))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == []


def test_an_actor_that_left_in_peace_is_told_only_if_the_driver_fell_over_it(
    cluster: Cluster,
) -> None:
    cluster.end(31, code=0)
    cluster.report(dead(31, "exited", at=cluster.now, detail="exited with status 0"))
    cluster.wait(5)
    assert cluster.named() == []
    cluster.end(10, code=1)
    cluster.report(dead(10, "exception", at=cluster.now))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert cluster.named() == [("train_rl-1", "actor-dead", ["Rollout 1"], "critical")]


def test_what_may_have_been_ctrl_c_accuses_no_driver(
    cluster: Cluster,
) -> None:
    cluster.report(dead(10, "exception", at=cluster.now, is_proven=False))
    cluster.end_all("driver-ended")
    cluster.wait(3)
    assert cluster.named() == []
    cluster.end(10, code=1)
    cluster.wait(3)
    assert cluster.named() == [], "with Ray's excepthook Ctrl-C gives this status too"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("IndexError: list index out of range", True),
        ("my.own.Error", True),
        ("KeyboardInterrupt", False),
        ("SystemExit: 2", False),
        (f"KeyboardInterrupt\n\nDuring handling\n\n{TRACEBACK}\nA: b", False),
        (f"KeyboardInterrupt\nException ignored in: <f>\n{TRACEBACK}\nA: b", False),
        (f"A: b\nException ignored in: <f>\n{TRACEBACK}\nc", True),
        ("", False),
    ],
)
def test_what_a_driver_wrote_last_tells_an_exception_from_ctrl_c(
    cluster: Cluster, said: str, told: bool
) -> None:
    frames = f'{TRACEBACK}\n  File "a.py", line 3, in <module>\n    [][i]\n'
    cluster.end(10, code=1, said=f"step 1\n{frames}{said}\n" if said else "step 1\n")
    cluster.report(dead(10, "exception", at=cluster.now, detail="[][i]", is_proven=False))
    cluster.end_all("driver-ended")
    cluster.wait(8)
    assert bool(cluster.named()) == told
    if told:
        ((_, kind, culprits, severity),) = cluster.named()
        assert (kind, culprits, severity) == ("driver-dead", ["driver"], "critical")
