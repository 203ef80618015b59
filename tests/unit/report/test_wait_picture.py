"""Who waits for whom, drawn: the root is marked, edges are labelled, any size stays a picture."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.incident import (
    ChainLink,
    Culprit,
    Incident,
    Milestone,
    RankLog,
    Verdict,
)
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.report.wait_picture import (
    BOX,
    MOST_BOXES,
    MOST_CLASSES,
    WIDTH,
    WaitPicture,
    columns,
    wait_picture,
    wrapped,
)
from tests.support.incidents import an_incident
from tests.support.page_data import incident_of_actors


def drawn(verdict: Verdict) -> WaitPicture:
    incident = an_incident(verdict=verdict, confirmed_at=141.0, last_progress=100.0)
    picture = wait_picture(incident)
    assert picture is not None
    tops = [box.y for box in picture.boxes]
    assert tops == sorted(tops)
    assert all(
        one.y + one.height <= two.y
        for one, two in zip(picture.boxes, picture.boxes[1:], strict=False)
    )
    assert picture.boxes[-1].y + picture.boxes[-1].height <= picture.height
    return picture


def of_chain(*links: ChainLink, culprits: tuple[Culprit, ...] = ()) -> WaitPicture:
    return drawn(Verdict(kind="actor-stuck", summary="s", chain=links, culprits=culprits))


def actor(name: str) -> Culprit:
    return Culprit(rank=None, host="node2", pid=7, reason="sleeping", role="Rollout", actor=name)


def link(start: str, end: str, how: str = "ray.get", since: float | None = None) -> ChainLink:
    return ChainLink(start=start, end=end, how=how, since=since)


def test_a_chain_ends_in_its_root_and_its_edges_tell_call_and_age() -> None:
    picture = of_chain(
        link("driver", "Trainer.update at Trainer 1", since=100.0),
        link("Trainer.update at Trainer 1", "all_reduce of Trainer", "in", 101.0),
        link("all_reduce of Trainer", "Trainer 0", "has not come to it"),
        link("Trainer 0", "Rollout.generate at Rollout 2", since=120.0),
        culprits=(actor("Rollout 2"),),
    )
    titles = ["driver", "Trainer 1", "all_reduce of Trainer", "Trainer 0", "Rollout 2"]
    assert [box.title for box in picture.boxes] == titles
    assert [box.kind for box in picture.boxes] == ["waiter"] * 4 + ["root"]
    assert picture.boxes[-1].lines == ("node2 · pid 7", "sleeping")
    assert [arrow.label for arrow in picture.arrows] == [
        "ray.get for Trainer.update, 41 s",
        "waits in, 40 s",
        "not reached by",
        "ray.get for Rollout.generate, 21 s",
    ]


def test_an_actor_that_is_a_rank_is_called_by_both() -> None:
    both = msgspec.structs.replace(actor("Trainer 1"), rank=1)
    picture = of_chain(link("all_reduce of Trainer", "Trainer 1"), culprits=(both,))
    assert picture.boxes[-1].title == "Trainer 1"
    assert picture.boxes[-1].lines == ("rank 1 · node2 · pid 7", "sleeping")


def test_a_circle_leads_back_and_all_its_members_are_roots() -> None:
    picture = of_chain(
        link("driver", "A.f at A 0"),
        link("A.f at A 0", "A.f at A 1"),
        link("A.f at A 1", "A.f, which is queued at A 0", since=100.0),
        culprits=(actor("A 0"), actor("A 1")),
    )
    assert [(box.title, box.kind) for box in picture.boxes] == [
        ("driver", "waiter"),
        ("A 0", "root"),
        ("A 1", "root"),
    ]
    (back,) = (arrow for arrow in picture.arrows if arrow.back)
    assert (back.start, back.end) == (picture.boxes[2].middle, picture.boxes[1].middle)
    assert picture.arrows[-1].label == "ray.get for A.f, which is queued, 41 s"


def test_a_chain_to_what_is_no_process_has_its_end_as_root() -> None:
    reason = Culprit(rank=None, host="", pid=None, reason="no node has it")
    picture = of_chain(link("driver", "2 GPUs", "needs"), culprits=(reason,))
    assert picture.boxes[-1].kind == "root"
    assert picture.boxes[-1].lines == ("no node has it",)
    assert picture.arrows[0].label == "needs"


def test_the_middle_of_a_long_chain_is_left_out() -> None:
    links = [link(f"A {number}", f"A {number + 1}", f"by {number}") for number in range(200)]
    picture = of_chain(*links, culprits=(actor("A 200"),))
    assert len(picture.boxes) == MOST_BOXES + 1
    assert picture.boxes[MOST_BOXES // 2].title == "… 177 more …"
    assert picture.boxes[-1].kind == "root"
    half = MOST_BOXES // 2
    assert [arrow.label for arrow in picture.arrows] == [
        f"by {number}" for number in (*range(half), *range(200 - half, 200))
    ]


def test_ranks_that_wait_lead_to_those_that_hold_them_up() -> None:
    culprits = tuple(
        Culprit(rank=rank, host="node1", pid=rank, reason="is stopped") for rank in (3, 4)
    )
    waiting = (
        "ranks 0-2: for 3 in all_reduce, number 7",
        "rank 5: for 6 in recv",
        "rank 7: in send",
    )
    picture = drawn(Verdict(kind="stall", summary="s", culprits=culprits, waiting=waiting))
    assert [box.lines for box in picture.boxes] == [
        ("waits for rank 3 in all_reduce, number 7",),
        ("waits for rank 6 in recv",),
        ("in send",),
        ("node1", "is stopped"),
    ]
    assert [box.kind for box in picture.boxes] == ["waiter"] * 3 + ["root"]
    assert picture.boxes[-1].title == "ranks 3-4"
    assert [arrow.dashed for arrow in picture.arrows] == [False, True, False, False], "indirect"
    assert picture.arrows[-1].label == "no progress for 41.0 s"


def test_where_nobody_waits_or_nobody_is_named_nothing_is_drawn(incident: Incident) -> None:
    assert wait_picture(msgspec.structs.replace(incident, verdict=None)) is None
    nobody = Verdict(kind="stall", summary="s", waiting=("ranks 0-7: in all_reduce",))
    assert wait_picture(an_incident(verdict=nobody)) is None


def test_thousands_of_ranks_and_endless_names_stay_a_picture() -> None:
    long = "x<b>&" * 2000
    culprits = tuple(
        Culprit(rank=rank, host=f"{long}{rank}", pid=rank, reason=f"{rank} {long}")
        for rank in range(8192)
    )
    waiting = tuple(f"rank {number}: {long}" for number in range(8192))
    verdict = Verdict(kind="stall", summary="s", culprits=culprits, waiting=waiting)
    picture = drawn(verdict)
    assert len(picture.boxes) == 2 * (MOST_CLASSES + 1)
    assert all(columns(line) <= 54 for box in picture.boxes for line in (box.title, *box.lines))
    chain = tuple(link(long, f"{long}{number}") for number in range(50))
    drawn(Verdict(kind="actor-stuck", summary=long, chain=chain))
    logs = tuple(RankLog(rank=rank, host=long, pid=rank, missing=long) for rank in range(8192))
    steps = tuple(Milestone(float(rank), long, long) for rank in range(8192))
    page = incident_html(an_incident(verdict=verdict, logs=logs, milestones=steps))
    assert len(page) < 1_000_000
    written = markdown(an_incident(verdict=verdict, logs=logs, milestones=steps))
    assert len(written) < 65_536, "what an issue of GitHub takes"
    assert "<b>&" not in page


def test_wide_letters_count_twice() -> None:
    assert wrapped("排" * 30, 20, 2) == ["排" * 10, "排" * 9 + "…"]
    assert BOX < WIDTH


def test_nobody_is_drawn_as_culprit_where_nobody_is_named() -> None:
    known = incident_of_actors()
    assert known.verdict is not None
    verdict = msgspec.structs.replace(known.verdict, kind="unknown", culprits=())
    picture = wait_picture(msgspec.structs.replace(known, verdict=verdict))
    assert picture is not None
    assert all(box.kind != "root" for box in picture.boxes)
