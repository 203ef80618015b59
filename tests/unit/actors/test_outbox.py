"""What is sent again, and what is not."""

from __future__ import annotations

from ray_sentinel.actors.agent.reporting import MOST_EVENTS, MOST_EXITS, Outbox
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import Exit


def gone(order: int, pid: int = 7, signal: int | None = None) -> Exit:
    rank = Rank(id=RankId("j", 0, 0), process=ProcessId("h", pid), node="n")
    return Exit(rank=rank, at=0.0, order=order, signal=signal)


def event(message: str, **attributes: str) -> Event:
    return Event(time=0.0, kind="kernel.oom", message=message, attributes=attributes)


def test_events_are_sent_until_a_report_arrives() -> None:
    outbox = Outbox(SteadyClock(FakeClock()))
    outbox.add_events([event("a")])
    assert [sent.message for sent in outbox.take_events()] == ["a"]
    outbox.add_events([event("b")])
    assert [sent.message for sent in outbox.take_events()] == ["a", "b"]
    outbox.add_events([event("c")])
    outbox.acknowledged(())
    assert [sent.message for sent in outbox.take_events()] == ["c"], "it came after the report"


def test_exits_are_sent_until_each_is_acknowledged() -> None:
    outbox = Outbox(SteadyClock(FakeClock()))
    for order in (1, 2, 3):
        outbox.add_exit(gone(order))
    outbox.acknowledged([2, 9])
    assert [ended.order for ended in outbox.exits()] == [1, 3]


def test_the_oldest_go_while_the_coordinator_is_away() -> None:
    outbox = Outbox(SteadyClock(FakeClock()))
    for order in range(MOST_EXITS + 2):
        outbox.add_exit(gone(order))
        outbox.add_events([event(str(order))])
        outbox.take_events()
    assert [ended.order for ended in outbox.exits()] == list(range(2, MOST_EXITS + 2))
    sent = [event.message for event in outbox.take_events()]
    assert sent == [str(order) for order in range(MOST_EXITS + 2)][-MOST_EVENTS:]


def test_the_kernel_says_whom_it_killed_for_memory() -> None:
    outbox = Outbox(SteadyClock(FakeClock()))
    outbox.add_events([event("Out of memory: Killed process 7", pid="7")])
    outbox.take_events()
    outbox.add_events([event("Out of memory: Killed process 8", pid="8")])
    assert outbox.add_exit(gone(1, pid=7, signal=9)).oom_killed, "told in an earlier report"
    assert outbox.add_exit(gone(2, pid=8, signal=9)).oom_killed
    assert not outbox.add_exit(gone(3, pid=9, signal=9)).oom_killed
    assert not outbox.add_exit(gone(4, pid=8, signal=15)).oom_killed


def test_what_there_is_no_room_for_is_counted_and_said() -> None:
    outbox = Outbox(SteadyClock(FakeClock()))
    assert outbox.problem == ""
    for order in range(MOST_EXITS + 3):
        outbox.add_exit(gone(order))
    outbox.add_events(event(str(number)) for number in range(MOST_EVENTS))
    outbox.take_events()
    outbox.add_events([event("newest"), event("newest of all")])
    assert [one.order for one in outbox.exits()] == list(range(3, MOST_EXITS + 3))
    assert outbox.take_events()[-1].message == "newest of all"
    assert len(outbox.take_events()) == MOST_EVENTS
    assert outbox.lost == {"exits": 3, "events": 2}
    assert outbox.problem == ("no coordinator for long: the oldest 3 exits and 2 events were lost")


def test_events_are_told_on_the_agents_clock_after_the_wall_clock_was_set() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    outbox = Outbox(clock)
    wall.advance(10.0)
    wall.step(-3600.0)
    killed = Event(time=wall.now() - 2.0, kind="kernel.oom", message="Out of memory")
    outbox.add_events((killed,))
    (told,) = outbox.take_events()
    assert told.time == clock.now() - 2.0
