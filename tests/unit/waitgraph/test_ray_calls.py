"""From Ray's tables and one look at the stacks to who waits for whom."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from ray_sentinel.evidence.movement import Movement
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import (
    PendingGroup,
    RayActor,
    RayCall,
    RayCalls,
    RayDriver,
    of_job,
)
from ray_sentinel.model.stacks import Activity, StackFact
from ray_sentinel.waitgraph import awaited_row
from ray_sentinel.waitgraph.facts import WaitFact
from ray_sentinel.waitgraph.picture import JobPicture, WaitRoot, picture
from ray_sentinel.waitgraph.ray_calls import RayFacts

NOW = 1_000_000.0
JOB = "01000000"
DRIVER = "f" * 40 + JOB
NODE = "ab" * 28
IN_GET = ("loop (rl.py:21)", "get (ray/_private/worker.py:3009)")
IN_WAIT = ("loop (rl.py:21)", "wait (ray/_private/worker.py:3201)")
AT_REST = ("main_loop (ray/_private/worker.py:1069)",)


class Cluster:
    """One job: a driver in ``ray.get``, and what a test adds."""

    def __init__(self, driver: tuple[str, ...] = IN_GET) -> None:
        self.calls: list[RayCall] = [self._call(DRIVER, "f" * 56, "driver", age=100.0)]
        self.actors: list[RayActor] = []
        self.groups: list[PendingGroup] = []
        self.started: dict[tuple[str, int], ProcessId] = {}
        self.stacks: dict[ProcessId, StackFact] = {}
        self.moved: dict[ProcessId, Movement] = {}
        self.woken: list[ProcessId] = []
        self.left_off = 0
        self._stack("10.0.0.1", 1, driver, "network-wait", "waiting for Ray")

    def actor(
        self,
        kind: str,
        stack: tuple[str, ...] = AT_REST,
        activity: Activity = "idle",
        label: str = "idle",
        **more: object,
    ) -> RayActor:
        pid = 100 + len(self.actors)
        number = sum(actor.kind == kind for actor in self.actors)
        actor = RayActor(
            id=f"{pid:024x}{JOB}", job=JOB, kind=kind, number=number, node=NODE, pid=pid
        )
        self.actors.append(actor)
        self._stack(NODE, pid, stack, activity, label, **more)
        return actor

    def call(
        self, actor: RayActor | None, name: str, parent: str = DRIVER, **more: object
    ) -> RayCall:
        call = self._call(
            f"{len(self.calls):016x}{actor.id if actor else 'f' * 24 + JOB}",
            parent,
            "actor-task" if actor else "task",
            name=name,
            actor=actor.id if actor else "",
            node=NODE,
            pid=actor.pid if actor else 0,
        )
        age = more.pop("age", 40.0)
        call = msgspec.structs.replace(call, since=NOW - age, made=NOW - age, **more)  # type: ignore[operator]
        self.calls.append(call)
        return call

    def facts(self) -> tuple[WaitFact, ...]:
        return RayFacts(self.tables(), self.started, self.stacks, self.moved).facts

    def tables(self) -> RayCalls:
        return RayCalls(
            at=NOW,
            drivers=(RayDriver(job=JOB, pid=1, address="10.0.0.1", command="python rl.py"),),
            actors=tuple(self.actors),
            calls=tuple(self.calls),
            groups=tuple(self.groups),
            left_off=self.left_off,
        )

    def picture(self) -> JobPicture:
        found = picture(
            RayFacts(self.tables(), self.started, self.stacks, self.moved, woken=self.woken)
        )
        assert len(found.jobs) == 1
        return found.jobs[0]

    def roots(self) -> tuple[WaitRoot, ...]:
        return self.picture().roots

    def _call(self, id_: str, parent: str, kind: str, age: float = 40.0, **more: object) -> RayCall:
        return RayCall(
            id=id_,
            parent=parent,
            job=JOB,
            kind=kind,  # type: ignore[arg-type]
            since=NOW - age,
            made=NOW - age,
            **more,  # type: ignore[arg-type]
        )

    def _stack(
        self,
        where: str,
        pid: int,
        signature: Iterable[str],
        activity: Activity,
        label: str,
        **more: object,
    ) -> None:
        process = ProcessId("node1", pid, 5)
        self.started[where, pid] = process
        self.stacks[process] = StackFact(
            process=process,
            signature=tuple(signature),
            activity=activity,
            label=label,
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture(params=[awaited_row.FEW, 0], ids=["few", "many"], autouse=True)
def one_by_one_or_by_halves(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_row, "FEW", request.param)


def asleep(cluster: Cluster, kind: str = "Rollout") -> RayActor:
    return cluster.actor(kind, ("score (reward.py:88)",), "sleep", "sleeping")


def test_a_rollout_that_sleeps_is_followed_to_through_trainers_that_queue_for_it() -> None:
    cluster = Cluster()
    trainers = [cluster.actor("Trainer", IN_GET, "network-wait", "waiting") for _ in range(2)]
    cluster.actor("Rollout")
    rollout = asleep(cluster)
    updates = [cluster.call(trainer, "Trainer.update") for trainer in trainers]
    cluster.call(rollout, "Rollout.generate", updates[0].id)
    cluster.call(rollout, "Rollout.generate", updates[1].id, state="queued", pid=0)
    (root,) = cluster.roots()
    assert (root.kind, root.who, root.waiters) == ("standing", ("Rollout 1",), 3)
    assert root.sentence == (
        "driver waits 40 s in ray.get for Trainer.update at Trainer 0 → waits 40 s in ray.get for "
        "Rollout.generate at Rollout 1 → sleeping in score (reward.py:88)"
    )
    assert [(link.start, link.end) for link in root.chain] == [
        ("driver", "Trainer.update at Trainer 0"),
        ("Trainer.update at Trainer 0", "Rollout.generate at Rollout 1"),
    ]


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("running", "Rollout.generate at Rollout 1"),
        ("queued", "Rollout.generate, which is queued at Rollout 1"),
    ],
)
def test_a_stopped_one_that_was_called_is_told_though_the_driver_takes_any(
    state: str, end: str
) -> None:
    cluster = Cluster(IN_WAIT)
    busy = cluster.actor("Rollout", ("score (reward.py:88)",), "compute", "", active=True)
    stopped = cluster.actor("Rollout", ("score (reward.py:88)",), state="T")
    cluster.actor("Rollout", ("score (reward.py:88)",), state="T")  # nobody has called it
    cluster.call(busy, "Rollout.generate")
    cluster.call(stopped, "Rollout.generate", state=state)
    works, root = cluster.roots()
    assert (works.kind, works.waiters) == ("works", 1)
    assert (root.kind, root.who, root.waiters) == ("broken", ("Rollout 1",), 0)
    (link,) = root.chain
    assert (link.start, link.end, link.how) == ("driver", end, "called")
    assert root.sentence == f"driver called {end} → is stopped by a signal"


def test_idle_actors_wait_for_a_driver_that_sleeps() -> None:
    cluster = Cluster()
    process = ProcessId("node1", 1, 5)
    cluster.stacks[process] = StackFact(
        process=process, signature=("main (rl.py:9)",), activity="sleep", label="sleeping"
    )
    cluster.actor("Rollout")
    (root,) = cluster.roots()
    assert (root.kind, root.who, root.waiters) == ("standing", ("driver",), 1)
    assert root.sentence == (
        "Rollout 0 has nothing to do until it is called by driver → sleeping in main (rl.py:9)"
    )
    (driver, *_) = cluster.picture().processes
    assert (driver.label, driver.activity, driver.place) == ("driver", "sleeping", "main (rl.py:9)")


def test_two_actors_in_each_others_ray_get_are_a_circle() -> None:
    cluster = Cluster()
    a, b = (cluster.actor("Peer", IN_GET, "network-wait", "waiting") for _ in range(2))
    run = cluster.call(a, "Peer.run")
    pong = cluster.call(b, "Peer.pong", run.id)
    cluster.call(a, "Peer.ping", pong.id, state="queued", pid=0)
    (root,) = cluster.roots()
    assert root.kind == "circle"
    assert root.sentence.startswith("driver waits 40 s in ray.get for Peer.run at Peer 0")
    assert root.sentence.endswith("they wait for each other")
    assert len(root.chain) == 3


def test_a_call_that_has_just_ended_holds_nobody_up() -> None:
    cluster = Cluster()
    cluster.call(cluster.actor("Rollout"), "Rollout.generate", age=1.0)
    assert [root.kind for root in cluster.roots()] == ["works"]


def test_an_actor_that_rests_while_a_call_of_it_runs_for_long_awaits_something_of_its_own() -> None:
    cluster = Cluster()
    cluster.call(cluster.actor("Engine"), "Engine.serve")
    (root,) = cluster.roots()
    assert (root.kind, root.why) == ("standing", "awaits something of its own")


def test_what_an_async_actor_calls_is_found_by_its_creation() -> None:
    cluster = Cluster()
    front = cluster.actor("Front")
    engine = asleep(cluster, "Engine")
    for _ in range(3):
        cluster.call(front, "Front.ask")
    cluster.call(engine, "Engine.generate", "f" * 16 + front.id)
    (root,) = cluster.roots()
    assert root.who == ("Engine 0",)
    assert "waits 40 s in await for Engine.generate at Engine 0" in root.sentence


def test_an_idle_actor_waits_for_no_driver_that_awaits_others_in_its_event_loop() -> None:
    loop = ("main (rl.py:9)", "run_until_complete (asyncio/base_events.py:640)")
    cluster = Cluster()
    driver = cluster.started["10.0.0.1", 1]
    cluster.stacks[driver] = msgspec.structs.replace(
        cluster.stacks[driver], signature=loop, activity="idle", label="idle", users_code=True
    )
    cluster.actor("Grader")
    cluster.call(asleep(cluster, "Grader"), "Grader.grade")
    (root,) = cluster.roots()
    assert (root.who, root.waiters) == (("Grader 1",), 1)
    assert root.sentence.startswith("driver waits 40 s in await for Grader.grade at Grader 1")


def test_who_reads_the_batches_of_ray_data_waits_for_the_calls_that_make_them() -> None:
    cluster = Cluster()
    driver = cluster.started["10.0.0.1", 1]
    reads = ("main (rl.py:9)", "iter_threaded (ray/data/_internal/block_batching/util.py:151)")
    cluster.stacks[driver] = msgspec.structs.replace(
        cluster.stacks[driver], signature=reads, activity="input-wait", label="waiting for data"
    )
    cluster.call(asleep(cluster, "MapWorker"), "MapWorker.submit")
    (root,) = cluster.roots()
    assert (root.who, root.waiters) == (("MapWorker 0",), 1)
    assert root.sentence.startswith("driver waits 40 s in await for MapWorker.submit at MapWorker")


def test_an_object_that_was_handed_over_leads_to_the_call_that_makes_it() -> None:
    cluster = Cluster()
    producer = asleep(cluster, "Producer")
    consumer = cluster.actor("Consumer", IN_GET, "network-wait", "waiting")
    cluster.call(producer, "Producer.make", age=41.0)
    cluster.call(consumer, "Consumer.use")
    stuck = [root for root in cluster.roots() if root.kind == "standing"]
    assert [root.who for root in stuck] == [("Producer 0",)]
    assert stuck[0].waiters == 2


def test_an_object_whose_maker_nobody_knows_ends_the_chain() -> None:
    cluster = Cluster()
    cluster.call(cluster.actor("Consumer", IN_GET, "network-wait", "waiting"), "Consumer.use")
    (root,) = cluster.roots()
    assert (root.kind, root.who) == ("unheld", ("an object whose maker is not known",))


def test_an_object_of_an_untold_call_may_come_from_who_runs_the_users_code() -> None:
    """As from a replica of Ray Serve, of whose requests Ray's control store is told nothing."""
    cluster = Cluster()
    score: tuple[str, ...] = ("score (model.py:4)",)
    cluster.actor("Replica", score, "sleep", "sleeping", tid=9, users_code=True, rests=True)
    cluster.actor("Replica", ("loop (ray/serve/_private/replica.py:3746)",), "unknown", "polling")
    cluster.actor("Controller")
    (root,) = [root for root in cluster.roots() if root.kind != "idle"]
    assert (root.kind, root.who, root.waiters) == ("standing", ("Replica 0",), 1)
    assert root.sentence == (
        "driver waits in ray.get for an object whose maker is not known → may come from Replica 0 "
        "→ sleeping in score (model.py:4)"
    )
    (standing,) = cluster.picture().standing
    assert (standing.member.label, standing.member.methods) == ("Replica 0", ())


def test_who_stands_in_a_librarys_code_is_told_with_the_users_line_that_called_it() -> None:
    cluster = Cluster()
    places: tuple[str, ...] = ("stream (data.py:12)", "wait (threading.py:327)")
    waits = cluster.actor(
        "Reader", places, "lock-wait", "waiting", users_place="stream (data.py:12)"
    )
    cluster.call(waits, "Reader.stream")
    (root,) = cluster.roots()
    assert root.why == "waiting in wait (threading.py:327), called in stream (data.py:12)"


def test_a_request_that_works_holds_up_nobody() -> None:
    cluster = Cluster()
    score: tuple[str, ...] = ("score (model.py:4)",)
    replica = cluster.actor("Replica", score, "sleep", "sleeping", tid=9, users_code=True)
    cluster.woken = [cluster.started[NODE, replica.pid]]
    assert [root.kind for root in cluster.roots()] == ["works"]
    assert cluster.picture().standing == ()


def test_an_actor_that_awaits_a_call_is_not_judged_by_a_thread_of_its_own() -> None:
    cluster = Cluster()
    front = cluster.actor("Front", ("tick (log.py:4)",), "sleep", "sleeping", tid=9, rests=True)
    engine = cluster.actor("Engine", ("generate (e.py:7)",), "sleep", "sleeping")
    cluster.call(front, "Front.ask")
    cluster.call(engine, "Engine.answer", "f" * 16 + front.id)
    (root,) = cluster.roots()
    assert (root.kind, root.who, root.waiters) == ("standing", ("Engine 0",), 2)


def test_rollouts_in_flight_that_compute_hold_up_nobody_who_needs_any_of_them() -> None:
    cluster = Cluster(IN_WAIT)
    for _ in range(2):
        busy = cluster.actor("Rollout", ("step (a.py:3)",), "compute", "computing", active=True)
        cluster.call(busy, "Rollout.generate")
    cluster.call(asleep(cluster), "Rollout.generate")
    assert {root.kind for root in cluster.roots()} == {"works"}


@pytest.mark.parametrize(
    ("moved", "kind"),
    [("stuck", "standing"), ("unknown", "standing"), ("in-place", "works"), ("moved", "works")],
)
@pytest.mark.parametrize("in_thread", [False, True])
def test_who_asks_its_device_over_and_over_moves_only_where_its_stack_changes(
    moved: Movement, kind: str, in_thread: bool
) -> None:
    cluster = Cluster()
    places = ("generate (rollout.py:14)", "synchronize (torch/cuda/__init__.py:1162)")
    label = "waiting for the device"
    thread = {"tid": 7, "switches": 9} if in_thread else {}
    asks = cluster.actor("Rollout", places, "device-wait", label, active=True, **thread)
    cluster.call(asks, "Rollout.generate")
    process = cluster.started[NODE, asks.pid]
    cluster.moved[process] = moved
    cluster.woken = [process] if in_thread else []
    found = cluster.picture()
    (root,) = found.roots
    assert (root.kind, root.who, root.waiters) == (kind, ("Rollout 0",), 1)
    assert root.why.endswith(f"{label} in synchronize (torch/cuda/__init__.py:1162)")
    assert ("which goes on" in root.sentence) == (kind == "works")
    asking = [one.round_in is not None for one in found.standing if one.at_device]
    assert asking == ([] if kind == "works" else [moved == "stuck"])


@pytest.mark.parametrize(
    ("state", "text"),
    [("T", "is stopped by a signal"), ("D", "is blocked in the kernel"), ("Z", "has ended")],
)
def test_a_process_that_cannot_run_is_broken_even_in_ray_get(state: str, text: str) -> None:
    cluster = Cluster()
    trainer = cluster.actor("Trainer", IN_GET, "network-wait", "waiting", state=state)
    update = cluster.call(trainer, "Trainer.update")
    cluster.call(asleep(cluster), "Rollout.generate", update.id)
    stuck = {root.who: root.why for root in cluster.roots()}
    assert stuck[("Trainer 0",)] == text


def test_ranks_in_a_collective_wait_for_the_one_of_their_class_that_is_not_there() -> None:
    cluster = Cluster()
    for _ in range(3):
        rank = cluster.actor(
            "Worker",
            ("train (w.py:7)", "all_reduce (torch/distributed/distributed_c10d.py:1)"),
            "collective-wait",
            "in all_reduce",
            waits_for_others=True,
            operation="all_reduce",
        )
        cluster.call(rank, "Worker.train")
    asleep(cluster, "Worker")
    (root,) = cluster.roots()
    assert (root.who, root.waiters) == (("Worker 3",), 4)
    assert "in all_reduce of Worker → Worker 3 has not come to it → sleeping" in root.sentence


def test_a_placement_group_that_no_node_can_hold() -> None:
    cluster = Cluster()
    cluster.groups.append(
        PendingGroup(
            id="0" * 36, name="trainers", job=JOB, bundles=({"GPU": 8.0},), infeasible=True
        )
    )
    (root,) = cluster.roots()
    assert (root.kind, root.who) == (
        "unheld",
        ("placement group trainers (8 GPU, which no node can hold)",),
    )


def test_a_call_waits_for_the_actor_that_cannot_be_placed() -> None:
    cluster = Cluster()
    actor = RayActor(id=f"{7:024x}{JOB}", job=JOB, kind="Big", state="PENDING_CREATION")
    cluster.actors.append(actor)
    cluster.calls.append(
        RayCall(
            id="f" * 16 + actor.id,
            parent=DRIVER,
            job=JOB,
            kind="actor-creation",
            name="Big.__init__",
            actor=actor.id,
            state="unplaced",
            since=NOW - 50,
            needs={"CPU": 64.0},
        )
    )
    cluster.call(actor, "Big.hello", state="unplaced", node="", pid=0)
    (root,) = cluster.roots()
    assert (root.kind, root.who) == ("unheld", ("a node with 64 CPU free",))
    assert "needs its actor Big.__init__ → needs a node with 64 CPU free" in root.sentence


def test_an_actor_whose_constructor_runs_is_called_by_its_name() -> None:
    cluster = Cluster()
    actor = asleep(cluster, "Big")
    cluster.calls.append(
        RayCall(
            id="f" * 16 + actor.id,
            parent=DRIVER,
            job=JOB,
            kind="actor-creation",
            name="Big.__init__",
            actor=actor.id,
            since=NOW - 50,
            node=NODE,
            pid=actor.pid,
        )
    )
    # Ray tells where it is once it has come through.
    cluster.actors[0] = msgspec.structs.replace(actor, state="PENDING_CREATION", node="", pid=0)
    cluster.call(actor, "Big.hello", state="unplaced", node="", pid=0)
    (root,) = cluster.roots()
    assert (root.kind, root.who) == ("standing", ("Big 0",))
    assert root.processes[0].methods == ("Big.__init__",)


def test_the_drivers_of_other_jobs_are_waited_for_by_nobody() -> None:
    cluster = Cluster()
    other = "02000000"
    cluster.calls.append(
        msgspec.structs.replace(
            cluster.calls[0], id="f" * 40 + other, job=other, made=NOW - 200, since=NOW - 200
        )
    )
    (root,) = cluster.roots()
    assert root.who == ("an object whose maker is not known",)


@pytest.mark.parametrize("lives", [False, True], ids=["outlives its job", "is lent"])
def test_an_actor_of_another_job_is_waited_for_by_who_has_called_it(lives: bool) -> None:
    cluster = Cluster()
    other = "02000000"
    scorer = asleep(cluster, "Scorer")
    cluster.actors[0] = msgspec.structs.replace(scorer, id=f"{100:024x}{other}", job=other)
    cluster.call(cluster.actors[0], "Scorer.score")
    tables = cluster.tables()
    if lives:
        another = msgspec.structs.replace(tables.drivers[0], job=other, pid=2)
        tables = msgspec.structs.replace(tables, drivers=(*tables.drivers, another))
    facts = RayFacts(of_job(tables, JOB), cluster.started, cluster.stacks, {})
    (job,) = picture(facts).jobs
    (root,) = job.roots
    assert (root.kind, root.who, root.waiters) == ("standing", ("Scorer 0",), 1)
    assert [one.member.methods for one in job.standing] == [("Scorer.score",)]


def test_a_task_in_a_placement_group_waits_for_the_group() -> None:
    cluster = Cluster()
    group = "1f" * 18
    cluster.groups.append(PendingGroup(id=group, job=JOB, bundles=({"CPU": 4.0},) * 6))
    cluster.call(None, "train", state="unplaced", node="", needs={f"CPU_group_0_{group}": 4.0})
    (root,) = cluster.roots()
    assert root.who == (
        "placement group 1f1f1f1f (4 CPU + 4 CPU + 4 CPU + 4 CPU and 2 bundles more)",
    )


def test_a_process_that_cannot_be_looked_at_ends_the_chain_with_the_remedy() -> None:
    cluster = Cluster()
    actor = cluster.actor("Trainer", (), "unknown", "", error="py-spy: needs CAP_SYS_PTRACE")
    cluster.call(actor, "Trainer.update")
    (root,) = cluster.roots()
    assert (root.kind, root.why) == ("mute", "py-spy: needs CAP_SYS_PTRACE")
    assert cluster.picture().processes[1].problem == "py-spy: needs CAP_SYS_PTRACE"


def test_tables_that_contradict_each_other_are_read_without_an_error() -> None:
    cluster = Cluster()
    actor = cluster.actor("A", IN_GET, "network-wait", "waiting")
    one = cluster.call(actor, "x" * 200)
    cluster.calls.append(msgspec.structs.replace(one, parent=one.id))
    cluster.calls.append(msgspec.structs.replace(one, id="0" * 48, parent="1" * 48))
    cluster.calls.append(
        msgspec.structs.replace(one, id="1" * 48, parent="0" * 48, made=None, since=None)
    )
    assert cluster.picture().processes


@pytest.mark.parametrize("how", ["handed on", "arguments", "groups", "many callers"])
def test_facts_grow_with_the_processes_and_calls_not_with_their_square(how: str) -> None:
    cluster, many = Cluster(), 1500
    server = cluster.actor("Server", IN_GET, "network-wait", "waiting")
    for number in range(many):
        if how == "arguments":
            state = "arguments" if number % 2 else "unplaced"
            cluster.call(None, "train", state=state, node="", age=90.0 - number / many)
            continue
        consumer = cluster.actor("Consumer", IN_GET, "network-wait", "waiting")
        if how == "groups":
            cluster.groups.append(PendingGroup(id=f"{number:036x}", job=JOB))
            continue
        call = cluster.call(consumer, "Consumer.use", age=90.0 - number / many)
        if how == "many callers":
            cluster.call(server, "Server.get", call.id)
    assert len(cluster.facts()) < 30 * many


def test_of_a_hundred_who_were_handed_something_the_chain_leads_to_the_one_that_makes_it() -> None:
    cluster = Cluster()
    cluster.call(asleep(cluster, "Producer"), "Producer.make", age=99.0)
    for number in range(100):
        consumer = cluster.actor("Consumer", IN_GET, "network-wait", "waiting")
        cluster.call(consumer, "Consumer.use", age=90.0 - number / 100)
    (root,) = cluster.roots()
    assert (root.kind, root.who, root.waiters) == ("standing", ("Producer 0",), 101)
    (link,) = root.chain
    assert (link.start, link.end, link.since) == ("driver", "Producer.make at Producer 0", NOW - 99)


def test_a_circle_through_many_calls_has_calls_and_processes_alone_for_members() -> None:
    cluster = Cluster()
    actor = cluster.actor("A", IN_GET, "network-wait", "waiting")
    run = cluster.call(actor, "A.run")
    needy = cluster.call(None, "join", run.id, state="arguments", node="")
    for _ in range(100):
        cluster.call(actor, "A.part", run.id, state="queued", pid=0)
    cluster.call(None, "collect", state="arguments", node="")
    (root,) = cluster.roots()
    assert root.kind == "circle"
    assert set(root.who) == {"A 0", "A.part", needy.name}
    ends = [end for link in root.chain for end in (link.start, link.end)]
    assert not [end for end in ends if " from " in end], "a node that stands for several calls"
