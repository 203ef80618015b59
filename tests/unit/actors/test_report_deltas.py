"""Reports that say only what has changed: what is taken is what was sent, whatever gets lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.messages import AgentReport, Receipt, pack, unpack
from ray_sentinel.actors.report_deltas import (
    MARK,
    DeltaSender,
    ReportDelta,
    completed,
    delta_of,
    read_message,
)
from ray_sentinel.config import Config
from ray_sentinel.masking import mask_record
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.metrics import CollectorStatus, Event
from ray_sentinel.model.progress import (
    Exit,
    LastWords,
    ProcessState,
    Progress,
    RankSnapshot,
    RayProcess,
    Snapshot,
)

NODE = Node(id="n" * 56, host="h", address="10.0.0.1")


def ranks(count: int, step: int) -> tuple[RankSnapshot, ...]:
    return tuple(
        RankSnapshot(
            rank=Rank(id=RankId("j", 0, number), process=ProcessId("h", 100 + number), node="n"),
            process=ProcessState(state="S", cpu_seconds=step * 0.7 + number, main_switches=step),
            progress=Progress(step=step, recent_step_seconds=(0.1 * step, 0.3)),
        )
        for number in range(count)
    )


def exits(count: int) -> tuple[Exit, ...]:
    gone = ranks(count, 1)
    return tuple(Exit(rank=one.rank, at=1.5, order=place) for place, one in enumerate(gone))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """What one look finds: mostly what the last found, with other counts."""
    few = st.integers(0, 3)
    names = draw(st.lists(st.sampled_from(("gpu", "net", "disk")), unique=True))
    return Snapshot(
        node=NODE,
        time=draw(st.floats(0.0, 1e9)),
        sequence=0,
        ranks=ranks(draw(few), draw(st.integers(0, 1 << 40))),
        exits=exits(draw(few)),
        collectors=tuple(CollectorStatus(name=name, state="running") for name in names),
        events=tuple(
            Event(time=1.0, kind="k", message=text * draw(st.sampled_from((1, 1, 9_000))))
            for text in draw(st.lists(st.text(max_size=8), max_size=2))
        ),
        ray_processes=tuple(
            RayProcess(process=ProcessId("h", pid), title=draw(st.text(max_size=4)))
            for pid in range(draw(few))
        ),
    )


class Cluster:
    """An agent, a coordinator, and what happens to the messages between them."""

    def __init__(self) -> None:
        self.lives = 0
        self.sent: dict[tuple[str, int], AgentReport] = {}
        self.late: list[bytes] = []
        """On the way still: a relay holds them."""
        self.start_agent()
        self.start_coordinator(knows_deltas=True)

    def start_agent(self) -> None:
        self.lives += 1
        self.sequence, self.sender = 0, DeltaSender()

    def start_coordinator(self, *, knows_deltas: bool) -> None:
        self.roster, self.knows_deltas = Roster(Config()), knows_deltas
        self.taken: list[AgentReport] = []

    def deliver(self, data: bytes) -> Receipt | None:
        """What the coordinator's actor does; None for an error that it raises."""
        if not self.knows_deltas and data.startswith(MARK):
            return None
        report = self.roster.opened(data)
        if report is None:
            return Receipt()
        if not self.roster.is_late(report):
            self.taken.append(report)
            self.roster.store(report, 0.0, 1)
        return Receipt(held=self.roster.held(report) if self.knows_deltas else 0)

    def report(self, snapshot: Snapshot, way: str) -> bool:
        """Whether the agent got the receipt of what was taken."""
        self.sequence += 1
        snapshot = msgspec.structs.replace(snapshot, sequence=self.sequence)
        report = AgentReport(
            snapshot=snapshot, incarnation=f"life{self.lives}", began=float(self.lives)
        )
        self.sent[report.incarnation, self.sequence] = report
        message = self.sender.message(report)
        while message:
            if way == "late":
                self.late.append(message)
            if way in ("lost", "late"):
                return False
            receipts = [self.deliver(message) for _ in range(2 if way == "doubled" else 1)]
            if way == "unanswered" or receipts[-1] is None:
                return False
            message = self.sender.answered(receipts[-1])
        return True

    def check(self) -> None:
        """All that was taken was sent so, each once and none after a later one of its agent."""
        newest: dict[str, int] = {}
        for report in self.taken:
            life, sequence = report.incarnation, report.snapshot.sequence
            assert pack(report) == pack(self.sent[life, sequence])
            assert sequence > newest.get(life, 0)
            newest[life] = sequence


WAYS = ("answered", "answered", "lost", "unanswered", "doubled", "late")
LIVES = ("agent", "coordinator", "older coordinator")
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(WAYS), snapshots()),
    st.tuples(st.just("comes late"), st.integers(0, 5)),
    st.tuples(st.sampled_from(LIVES), st.none()),
)


@given(st.lists(HAPPENINGS, max_size=25))
def test_what_is_taken_is_what_was_sent(story: list[tuple[str, Snapshot | int | None]]) -> None:
    cluster = Cluster()
    for what, told in story:
        if isinstance(told, Snapshot):
            before = len(cluster.taken)
            if cluster.report(told, what):
                assert len(cluster.taken) == before + 1, "once, also where it came twice"
                assert cluster.taken[-1].snapshot.sequence == cluster.sequence
        elif isinstance(told, int):
            if cluster.late:
                cluster.deliver(cluster.late[told % len(cluster.late)])
        else:
            cluster.check()
            if what == "agent":
                cluster.start_agent()
            else:
                cluster.start_coordinator(knows_deltas=what == "coordinator")
    cluster.check()


def look(step: int, count: int = 8) -> Snapshot:
    return Snapshot(node=NODE, time=step + 0.1, sequence=0, ranks=ranks(count, step))


def test_while_ranks_train_little_is_sent() -> None:
    cluster = Cluster()
    assert cluster.report(look(1), "answered")
    report = AgentReport(snapshot=look(2), incarnation="life1")
    message = cluster.sender.message(report)
    assert message.startswith(MARK)
    assert len(message) < 0.25 * len(pack(report))


def test_a_coordinator_that_was_started_anew_gets_the_whole_at_once() -> None:
    cluster = Cluster()
    cluster.report(look(1), "answered")
    cluster.start_coordinator(knows_deltas=True)
    assert cluster.report(look(2), "answered")
    assert [report.snapshot.ranks for report in cluster.taken] == [ranks(8, 2)]


def test_a_delta_that_comes_twice_is_answered_as_at_first() -> None:
    cluster = Cluster()
    cluster.report(look(1), "answered")
    snapshot = msgspec.structs.replace(look(2), sequence=2)
    message = cluster.sender.message(AgentReport(snapshot=snapshot, incarnation="life1"))
    assert [cluster.deliver(message) for _ in range(2)] == [Receipt(held=2)] * 2
    assert len(cluster.taken) == 2


def test_one_that_knows_no_deltas_gets_none() -> None:
    cluster = Cluster()
    cluster.start_coordinator(knows_deltas=False)
    assert all(cluster.report(look(step), "answered") for step in range(3))
    assert len(cluster.taken) == 3


def test_after_a_report_without_receipt_a_whole_one_is_sent() -> None:
    cluster = Cluster()
    cluster.report(look(1), "answered")
    cluster.report(look(2), "unanswered")
    message = cluster.sender.message(AgentReport(snapshot=look(3), incarnation="life1"))
    assert unpack(message, AgentReport).snapshot == look(3)


def through(new: AgentReport, old: AgentReport) -> AgentReport | None:
    """What a coordinator makes of the new one, that has the old one."""
    message = MARK + pack(delta_of(new, old))
    found = read_message(message)
    assert isinstance(found, ReportDelta)
    return completed(found, old)


@given(st.tuples(snapshots(), snapshots()), st.tuples(st.text(), st.text()))
def test_any_report_is_made_of_any_other(
    looks: tuple[Snapshot, ...], notes: tuple[str, ...]
) -> None:
    old, new = (
        AgentReport(
            snapshot=msgspec.structs.replace(look, sequence=number),
            incarnation="one",
            notes=(note,) * number,
        )
        for number, (look, note) in enumerate(zip(looks, notes, strict=True), start=1)
    )
    assert through(new, old) == new


def reports(new: RankSnapshot, old: RankSnapshot) -> tuple[AgentReport, AgentReport]:
    made = [
        AgentReport(
            snapshot=Snapshot(node=NODE, time=1.0, sequence=number, ranks=(rank,)),
            incarnation="one",
        )
        for number, rank in ((2, new), (1, old))
    ]
    return made[0], made[1]


RINGS = st.lists(st.sampled_from((0.1, 0.2, 0.3)), max_size=4).map(tuple)


@given(RINGS, RINGS, st.integers(0, 6), st.integers(0, 6))
def test_any_ring_of_steps_is_made_of_any_other(
    new: tuple[float, ...], old: tuple[float, ...], counted: int, before: int
) -> None:
    (rank,) = ranks(1, 1)
    one, other = (
        msgspec.structs.replace(
            rank, progress=Progress(recent_step_seconds=ring, steps_recorded=count)
        )
        for ring, count in ((new, counted), (old, before))
    )
    first, second = reports(one, other)
    assert through(first, second) == first


def test_every_field_of_a_rank_is_told() -> None:
    (rank,) = ranks(1, 1)
    others = {
        "process": ProcessState(
            state="R",
            wchan="w",
            frozen=True,
            interpreter="starved",
            tracer_pid=3,
        ),
        "progress": Progress(
            step=9,
            phase="save",
            scalars={"loss": 1.5},
            last_words=LastWords(time=1.0, kind="exit"),
            recent_step_seconds=(0.7,),
        ),
        "quiet_seconds": 4.0,
        "rank": msgspec.structs.replace(rank.rank, world_size=7),
    }
    assert set(others) == set(RankSnapshot.__struct_fields__)
    for name, value in others.items():
        changed = msgspec.structs.replace(rank, **{name: value})
        for one, other in ((changed, rank), (rank, changed)):
            new, old = reports(one, other)
            assert through(new, old) == new


def test_a_rank_that_attaches_and_one_that_is_another_process_are_told_whole() -> None:
    (rank,) = ranks(1, 1)
    another = msgspec.structs.replace(rank.rank, process=ProcessId("h", 7))
    for other in (
        msgspec.structs.replace(rank, progress=None),
        msgspec.structs.replace(rank, rank=another),
    ):
        for one, before in ((rank, other), (other, rank)):
            new, old = reports(one, before)
            assert delta_of(new, old).ranks.whole == ((0, one),)
            assert through(new, old) == new


def test_what_is_masked_is_masked_in_what_has_changed() -> None:
    secret, sender, roster = "hf_" + "a1B2" * 9, DeltaSender(), Roster(Config())
    for sequence in (1, 2):
        words = LastWords(time=1.0, kind="exception", text=f"token {secret} {sequence}")
        ranks_ = (msgspec.structs.replace(ranks(1, 1)[0], progress=Progress(last_words=words)),)
        snapshot = Snapshot(node=NODE, time=1.0, sequence=sequence, ranks=ranks_)
        report = AgentReport(snapshot=snapshot, incarnation="one")
        message = sender.message(report)
        assert secret.encode() not in message
        opened = roster.opened(message)
        assert opened == mask_record(report)
        roster.store(opened, 0.0, 1)
        sender.answered(Receipt(held=roster.held(opened)))
    assert message.startswith(MARK)


def test_a_delta_of_another_or_that_fits_nowhere_gives_nothing() -> None:
    one, two = ranks(2, 1)
    new, old = reports(one, two)
    made = delta_of(new, old)
    change = msgspec.structs.replace
    for wrong in (
        change(made, incarnation="another"),
        change(made, base=7),
        change(made, ranks=change(made.ranks, count=5)),
        change(made, ranks=change(made.ranks, places=(3,))),
        change(made, ranks=change(made.ranks, attached=(0,))),
    ):
        assert completed(wrong, old) is None


def test_what_is_unreadable_raises() -> None:
    for data in (b"", MARK, MARK + b"\x90", b"{}"):
        with pytest.raises(msgspec.DecodeError):
            read_message(data)


def test_a_delta_of_another_version_is_answered_by_asking_for_the_whole() -> None:
    roster = Roster(Config())
    assert roster.opened(MARK + pack(["only", "some", "fields"])) is None
    with pytest.raises(msgspec.DecodeError):
        roster.opened(pack(["no", "report"]))
