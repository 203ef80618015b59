"""After a restart of the coordinator: nothing is judged before the others are heard."""

from __future__ import annotations

from ray_sentinel.engine.actions import Capture, TakeStacks
from ray_sentinel.engine.engine import HOLD_SECONDS, Engine
from ray_sentinel.engine.events import NodeProbed, Resumed, Tick
from ray_sentinel.engine.state import unpacked
from tests.support.engine_sim import Sim


class Restarted(Sim):
    """A simulated job whose coordinator can be away."""

    def away(self, seconds: float) -> None:
        """What is told meanwhile is lost; exits are kept by their agents."""
        self.now += seconds
        self.pending.clear()

    def restart(self) -> None:
        """Another coordinator, with the state of the one before."""
        state, problem = unpacked(self.engine.state.packed())
        assert not problem
        self.engine = Engine(self.engine.config, state=state)
        self.feed(Resumed(time=self.now))


def fallen_apart() -> Restarted:
    """Rank 5 on n2 fell 2 s after the coordinator, rank 0 on n0 a second later; it comes back."""
    sim = Restarted()
    sim.run(30)
    sim.away(2.0)
    told, sim.dead_nodes = sim.dead_nodes, {"n0", "n1", "n2"}
    sim.end(5, signal=11)
    sim.away(1.0)
    sim.end(0, signal=9)
    sim.away(5.0)
    sim.dead_nodes = told
    sim.restart()
    return sim


def test_the_first_node_that_reports_is_not_blamed_for_it() -> None:
    sim = fallen_apart()
    sim.report("n0")
    sim.report("n1")
    assert sim.engine.store.incidents == {}, "nothing is judged yet"
    sim.now += 0.8
    sim.report("n2")
    sim.run(6)
    assert sim.named() == [5]


def test_a_node_that_is_back_only_after_the_hold_is_waited_for() -> None:
    sim = fallen_apart()
    sim.dead_nodes = {"n2"}
    sim.report("n0")
    sim.now += 3.0
    sim.run(1.5)
    assert sim.incidents() == ()
    sim.dead_nodes = set()
    sim.run(6)
    assert sim.named() == [5]


def test_the_hold_ends_by_itself_where_no_tick_comes() -> None:
    sim = fallen_apart()
    sim.now += HOLD_SECONDS + 0.1
    for node in ("n1", "n2", "n0"):
        sim.report(node)
    assert sim.engine.store.incidents, "exits are judged at once again"
    sim.run(6)
    assert sim.named() == [5]


def test_the_time_away_is_no_silence_of_the_nodes() -> None:
    sim = Restarted()
    sim.run(30)
    sim.away(100.0)
    sim.restart()
    sim.feed(NodeProbed(time=sim.now, node_id="n0", alive=True))
    sim.feed(Tick(time=sim.now))
    assert "sentinel.blind" not in [i.rule for i in sim.engine.store.incidents.values()]


def test_the_second_round_of_stacks_is_not_asked_for_together_with_the_first() -> None:
    sim = Restarted()
    sim.run(30)
    sim.stick(2)
    sim.stacks_seconds = 1000.0
    while not any(isinstance(a, TakeStacks) and a.incident for a in sim.actions):
        sim.run(0.5)
    (case,) = sim.engine.store.cases.values()
    assert case.asked_round == 1
    sim.away(8.0)
    sim.restart()
    (again,) = [a for a in sim.engine.unanswered() if isinstance(a, TakeStacks)]
    assert again.round == 1
    for node in sim.nodes:
        sim.report(node.id)
    before = len(sim.actions)
    sim.feed(Tick(time=sim.now))
    asked = [a for a in sim.actions[before:] if isinstance(a, TakeStacks) and a.incident]
    assert asked == [], "round 1 has just been asked for again"
    (case,) = sim.engine.store.cases.values()
    assert (case.asked_round, case.asked_round_at) == (1, sim.now)


def test_a_restart_is_replayed() -> None:
    sim = fallen_apart()
    state = sim.engine.state.packed()
    before = len(sim.log)
    sim.report("n0")
    sim.run(6)
    twin = Engine(state=unpacked(state)[0])
    for event in sim.log[before:]:
        twin.handle(event)
    assert twin.incidents() == sim.engine.incidents()
    assert twin.state.packed() == sim.engine.state.packed()


def test_a_capture_that_is_asked_for_again_has_its_time_anew() -> None:
    sim = Restarted()
    sim.run(30)
    sim.stick(2, state="T")
    while not any(isinstance(action, Capture) for action in sim.actions):
        sim.run(0.5)
    (case,) = sim.engine.store.cases.values()
    due = case.capture_due
    sim.away(400.0)
    assert not case.awaits_capture(sim.now)
    sim.restart()
    sim.feed(Tick(time=sim.now))
    (case,) = sim.engine.store.cases.values()
    assert case.awaits_capture(sim.now)
    assert case.capture_due > due
