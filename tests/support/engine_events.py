"""Event sequences for the engine: what hypothesis makes of a simulated cluster, move by move.

A move changes the simulated job (a rank sticks, ends, is replaced; a node goes; a GPU grows hot) or
feeds an event that nobody waited for (a late round of stacks, an answer to an incident that is
over). The log of a ``Story`` is a sequence of events as a coordinator sees them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    DumpAsked,
    IncidentTold,
    MemoryShort,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    PhasesRecalled,
    RasExplained,
    RayJobLooked,
    RayTableTold,
    StacksTaken,
    StragglersFound,
)
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident, Transition
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import RayProcess
from ray_sentinel.model.ras import RasCulprit, RasFacts
from ray_sentinel.model.ray_calls import (
    LookedAt,
    RayActor,
    RayCall,
    RayCalls,
    RayDriver,
    RayLook,
)
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.straggler import StragglerFacts
from tests.support.engine_sim import Sim, SimRank

WORLD, NODES = 4, 2
RAY_JOB = "02000000"
DRIVER, ROLLOUT = 900, 901
"""Their pids; 1000 is the first rank's."""


class Story:
    """A simulated job and what can befall it."""

    def __init__(self, attached: bool) -> None:
        self.sim = Sim(world=WORLD, nodes=NODES, attached=attached)
        self.sim.run(12)

    @property
    def log(self) -> list[AnyEvent]:
        """All events so far."""
        return self.sim.log

    def wait(self, number: int) -> None:
        self.sim.run(1 + 3 * number)

    def memory_short(self, number: int) -> None:
        for _ in range(1 + 2 * number):
            self.feed(MemoryShort(time=self.sim.now))

    def wait_long(self, number: int) -> None:
        self.sim.run(20 + 10 * number)

    def stick(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.stick(number)

    def loop(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.stick(number, spinning=True, activity="compute")

    def stop(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.stick(number, state="T")

    def hold_gil(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.stick(number, interpreter="gil-held", holds_gil=True, active=False)

    def go_on(self, number: int) -> None:
        rank = self.sim.rank(number)
        rank.stuck, rank.state, rank.interpreter = False, "S", "runs"
        rank.holds_gil = rank.active = None
        self.sim.begin_step()

    def save(self, number: int) -> None:
        rank = self.sim.rank(number)
        rank.phase = "train" if rank.phase == "checkpoint" else "checkpoint"
        rank.phase_since = self.sim.now
        rank.io += 10_000_000

    def die(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.end(number, signal=9)

    def raise_error(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.end(number, code=1, words="ValueError: bad batch")

    def leave(self, number: int) -> None:
        if not self.sim.rank(number).exited:
            self.sim.end(number, code=0)

    def restart_all(self, number: int) -> None:
        """All processes are replaced: under the same attempt, or another one."""
        sim = self.sim
        for rank in list(sim.ranks):
            if not rank.exited:
                sim.end(rank.number, signal=15)
        sim.run(1 if number else 12)
        attempt = sim.ranks[0].attempt + (number > 1)
        sim.ranks = [
            SimRank(r.number, r.node, r.pid + 100, r.attached, sim.now, attempt=attempt)
            for r in sim.ranks
        ]
        sim.begin_step()

    def lose_node(self, number: int) -> None:
        node = self.sim.nodes[number % NODES]
        self.sim.dead_nodes ^= {node.id}
        if node.id in self.sim.dead_nodes:
            self.feed(NodeLeft(time=self.sim.now, node_id=node.id, expected=number > 1))
        else:
            self.feed(NodeJoined(time=self.sim.now, node=node))

    def drain(self, number: int) -> None:
        self.feed(NodeDraining(time=self.sim.now, node_id=f"n{number % NODES}"))

    def heat(self, number: int) -> None:
        """The first node's GPUs tell of themselves, one of them strangely."""
        gauges: dict[str, float] = {}
        for gpu in range(4):
            where = f'{{gpu="{gpu}"}}'
            odd = gpu == 0 and number > 0
            gauges[f"hw_gpu_power_watts{where}"] = 120.0 if odd else 500.0 + gpu
            gauges[f"hw_gpu_temperature_celsius{where}"] = 95.0 if odd else 60.0
            gauges[f"hw_gpu_utilization_ratio{where}"] = 0.02 if number == 2 else 1.0
            gauges[f'hw_gpu_info{{gpu="{gpu}",name="H100",uuid="u{gpu}"}}'] = 1.0
        gauges['hw_rdma_port_state{device="mlx5_0",port="1"}'] = float(number != 3)
        gauges["hw_mem_available_bytes"] = 1e9 / (number + 1)
        gauges["hw_mem_total_bytes"] = 5e11
        self.sim.gauges = gauges

    def kernel_line(self, number: int) -> None:
        event = Event(
            time=self.sim.now,
            kind="kernel.xid",
            message=f"Xid {number}: 79",
            attributes={"xid": "79"},
        )
        self.sim.report("n0", (event,))

    def out_of_memory(self, number: int) -> None:
        self.sim.kernel_says_oom(number)

    def ask_for_a_dump(self, number: int) -> None:
        self.feed(DumpAsked(time=self.sim.now, thorough=number > 1))

    def recorders(self, number: int) -> None:
        """From now on the flight recorders name a rank, or nobody."""
        culprit = RecorderCulprit(rank=number, kind="not-enqueued", reason="has not called it")
        self.sim.recorder = (
            None
            if number == 0
            else RecorderFacts(kind="not-enqueued", culprits=(culprit,), strength=0.8)
        )

    def ras(self, number: int) -> None:
        culprit = RasCulprit(
            rank=number, host="host0", pid=1000, kind="not-enqueued", reason="is behind"
        )
        facts = RasFacts(kind="not-enqueued", culprits=(culprit,), strength=0.7)
        self.feed(RasExplained(time=self.sim.now, incident=f"000{number}", facts=facts))

    def straggler(self, number: int) -> None:
        facts = StragglerFacts(kind="slow-rank", ranks=(number,), cost=0.1, confidence=0.5)
        self.feed(
            StragglersFound(
                time=self.sim.now, job="job", attempt=0, facts=facts if number else None
            )
        )

    def slow_stacks(self, number: int) -> None:
        """From now on looks come so late, after their rounds were told without them."""
        self.sim.stacks_seconds = 0.2 + 3.0 * number

    def late_stacks(self, number: int) -> None:
        facts = tuple(self.sim.fact(rank) for rank in self.sim.ranks)
        self.feed(StacksTaken(time=self.sim.now, incident="0001", round=number, facts=facts))

    def late_bundle(self, number: int) -> None:
        self.feed(CaptureDone(time=self.sim.now, incident=f"000{number}", bundle="/tmp/late"))

    def told_otherwise(self, number: int) -> None:
        """As in the log of another version: it told of something else than what is known here."""
        at, key = self.sim.now, f"000{number + 1}"
        known = {one.id: one for one in self.sim.engine.incidents(everything=True)}
        usual = Incident(
            id=key, job="job", attempt=0, kind="rank-stopped", severity="critical",
            state="confirmed", summary="told otherwise", rule="rank.stopped", suspected_at=at,
            confirmed_at=at, history=(Transition(at, "suspected"), Transition(at, "confirmed")),
        )  # fmt: skip
        seen = known.get(key, usual)
        changes: tuple[dict[str, object], ...] = (
            {"state": "confirmed", "confirmed_at": at},
            {"state": "resolved", "confirmed_at": at, "resolved_at": at},
            {"job": "another", "state": "explained", "confirmed_at": at, "bundle": "/tmp/told"},
            {"rule": "sentinel.blind", "state": "confirmed", "confirmed_at": at},
        )
        incident = msgspec.structs.replace(seen, **changes[number])
        self.feed(IncidentTold(time=at, incident=incident))

    def phases(self, number: int) -> None:
        learned: dict[str, dict[str, tuple[float, ...]]] = {
            "job": {"compile": (30.0, 40.0 + number)}
        }
        self.feed(PhasesRecalled(time=self.sim.now, phases=learned))

    def ray_table(self, number: int) -> None:
        """Ray tells of a job of actors, of one whose first rank is among them, or of none."""
        self.feed(RayTableTold(time=self.sim.now, table=self._ray(number)))

    def ray_calls(self, number: int) -> None:
        """The workers of Ray begin another method, are stopped, or are gone."""
        now = self.sim.now
        title = ("Rollout", "Rollout.generate", "Rollout.score", "IDLE")[number]
        self.sim.ray_processes = tuple(
            RayProcess(
                process=ProcessId("host0", pid, 1),
                title=title,
                since=now,
                moved_at=now,
                state="T" if number == 2 else "S",
            )
            for pid in (ROLLOUT, 1000)
            if number < 3 or pid == ROLLOUT
        )

    def ray_look(self, number: int) -> None:
        """A look at the job, asked for or not: its driver waits for a rollout that sleeps, or that
        cannot be seen."""
        calls = self._ray(number)
        parent = RayCall(
            id="d", parent="", job=RAY_JOB, kind="driver", node="n0", pid=DRIVER, made=self.sim.now
        )
        call = RayCall(
            id="c", parent="d", job=RAY_JOB, kind="actor-task", name="Rollout.generate", actor="a0",
            node="n0", pid=ROLLOUT, made=self.sim.now,
        )  # fmt: skip
        rollout = ProcessId("host0", ROLLOUT, 1)
        fact = StackFact(
            process=rollout,
            at=self.sim.now,
            signature=("score (reward.py:88)",),
            activity="sleep",
            label="sleeping",
            waits_for_others=False,
            error="" if number < 2 else "not allowed",
        )
        waits = msgspec.structs.replace(
            fact,
            process=ProcessId("host0", DRIVER, 1),
            signature=("get (ray/_private/worker.py:2800)",),
            activity="network-wait",
            label="in ray.get",
            error="",
        )
        look = RayLook(
            calls=msgspec.structs.replace(calls, calls=(parent, call)),
            processes=tuple(
                LookedAt(node="n0", address="10.0.0.0", process=one.process)
                for one in (fact, waits)
            ),
            rounds=((fact, waits), (fact, waits)),
        )
        self.feed(RayJobLooked(time=self.sim.now, ray_job=RAY_JOB, look=look))

    def _ray(self, number: int) -> RayCalls:
        if number == 3:
            return RayCalls()
        driver = RayDriver(job=RAY_JOB, pid=DRIVER, address="10.0.0.0", name="train_rl-2")
        pids = (ROLLOUT, 1000)[: 1 + number % 2]
        return RayCalls(
            drivers=(driver,),
            actors=tuple(
                RayActor(
                    id=f"a{n}", job=RAY_JOB, kind="Rollout", number=n, node="n0", pid=pid,
                    state="ALIVE" if number < 2 else "PENDING_CREATION",
                )
                for n, pid in enumerate(pids)
            ),
        )  # fmt: skip

    def feed(self, event: AnyEvent) -> None:
        self.sim.feed(event)


MOVES: tuple[Callable[[Story, int], None], ...] = (
    Story.memory_short,
    Story.wait, Story.wait_long, Story.stick, Story.loop, Story.stop, Story.hold_gil,
    Story.go_on, Story.save, Story.die, Story.raise_error, Story.leave, Story.restart_all,
    Story.lose_node, Story.drain, Story.heat, Story.kernel_line, Story.out_of_memory,
    Story.ask_for_a_dump, Story.recorders, Story.ras, Story.straggler, Story.slow_stacks,
    Story.late_stacks, Story.late_bundle, Story.told_otherwise, Story.phases, Story.ray_table,
    Story.ray_calls, Story.ray_look,
)  # fmt: skip

_MOVE = st.tuples(st.sampled_from(MOVES), st.integers(0, WORLD - 1))


@st.composite
def stories(draw: st.DrawFn) -> list[AnyEvent]:
    """Events of a job to which up to eight things happen, with time in between."""
    story = Story(attached=draw(st.booleans()))
    for move, number in draw(st.lists(_MOVE, min_size=1, max_size=8)):
        move(story, number)
        story.sim.run(draw(st.sampled_from([0.5, 3.0, 15.0])))
    return story.log
