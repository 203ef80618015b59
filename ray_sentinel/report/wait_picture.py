"""Who waits for whom, laid out to be drawn: boxes below each other, and lines between them.

A chain of waits runs from top to bottom, one box for each process, operation or resource, and ends
in its root. A circle of calls goes back up at the right. Where only ranks and what they are in are
known, each class of them is a box, and a rail at the right leads to the ranks that hold them up.

The picture is as wide as a phone, so that its letters can be read on one and on paper; longer text
is cut, and is given in full in the box's tooltip and in the text beside the picture.
"""

from __future__ import annotations

import unicodedata

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.model.incident import Culprit, Incident, Verdict
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.report.words import since
from ray_sentinel.text import one_line
from ray_sentinel.waitgraph.chain import edge_label, who_and_call

WIDTH = 440
BOX = 396
"""Width of a box; the rest of the picture's width is for the rail."""
LINE = 17
"""Height of a line of text."""
PAD = 9
"""Space above and below the text of a box."""
STEP, GAP = 40, 8
"""Space between two boxes with an arrow, and between two without one."""
TEXT_COLUMNS = 54
"""Most characters in a line of a box."""
MOST_BOXES = 24
"""Most boxes of a chain; of a longer one, the middle is left out."""
MOST_CLASSES = 6
"""Most boxes for classes of waiting ranks, and for those that hold them up; of the others only the
number is shown."""
_FOR_RANKS = re.compile(r"for (?P<ranks>[0-9]+(?:, [0-9]+)*) in ")


class DrawnBox(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who waits, what is waited for, or the root."""

    y: float
    height: float
    title: str
    lines: tuple[str, ...] = ()
    whole: str = ""
    """The full text of the box, for a tooltip."""
    kind: str = "waiter"
    """The kind: "waiter", "root" or "gap" (boxes that were left out)."""

    @property
    def middle(self) -> float:
        """The vertical middle of the box."""
        return self.y + self.height / 2


class DrawnArrow(msgspec.Struct, frozen=True, kw_only=True):
    """From one box down to the next; with ``back`` at the right, from ``start`` to ``end``."""

    start: float
    end: float
    label: str = ""
    back: bool = False
    head: bool = True
    dashed: bool = False


class WaitPicture(msgspec.Struct, frozen=True, kw_only=True):
    """The picture, laid out."""

    boxes: tuple[DrawnBox, ...]
    arrows: tuple[DrawnArrow, ...]
    height: float
    said: str
    """The picture in words, for those who cannot see it."""
    width: int = WIDTH
    box_width: int = BOX


class _Pending(msgspec.Struct):
    """A box that has no place yet."""

    title: str
    lines: list[str] = []
    kind: str = "waiter"


def wait_picture(incident: Incident) -> WaitPicture | None:
    """The picture; None if nobody is known to wait for anything."""
    verdict = incident.verdict
    if verdict is None:
        return None
    if verdict.chain:
        at = incident.suspected_at if incident.confirmed_at is None else incident.confirmed_at
        return _of_chain(verdict, at)
    if not (verdict.culprits and verdict.waiting):
        return None
    silence = since(incident.last_progress, incident.confirmed_at).removeprefix("+")
    return _of_ranks(verdict, f"no progress for {silence}" if silence else "")


def _of_chain(verdict: Verdict, at: float) -> WaitPicture:
    boxes: list[_Pending] = []
    labels: list[str] = []
    """The label of the arrow below each box."""
    back: tuple[int, str] | None = None
    for link in verdict.chain:
        who = who_and_call(link.start)[0]
        if not boxes or boxes[-1].title != who:
            labels += [""] if boxes else []
            boxes.append(_Pending(who))
        end, label = who_and_call(link.end)[0], edge_label(link, at)
        earlier = next((n for n, box in enumerate(boxes) if box.title == end), None)
        if earlier is not None and link is verdict.chain[-1]:
            back = (earlier, label)
            break
        labels.append(label)
        boxes.append(_Pending(end))
    _mark_roots(boxes, verdict, circle_from=back[0] if back else None)
    if len(boxes) > MOST_BOXES and back is None:
        half = MOST_BOXES // 2
        left_out = len(boxes) - 2 * half
        boxes[half:-half] = [_Pending(f"… {left_out} more …", kind="gap")]
        del labels[half:-half]
    placed, height = _placed(boxes, [STEP] * (len(boxes) - 1))
    arrows = [
        DrawnArrow(start=upper.y + upper.height, end=lower.y, label=_cut(label, 52))
        for upper, lower, label in zip(placed, placed[1:], labels, strict=False)
    ]
    if back is not None:
        up = DrawnArrow(start=placed[-1].middle, end=placed[back[0]].middle, back=True)
        arrows.append(up)
        height += LINE + GAP
        below = height - GAP
        arrows.append(DrawnArrow(start=below, end=below, label=_cut(back[1], 52), head=False))
    steps = zip(placed, [*labels, ""], strict=False)
    said = "; ".join(f"{box.title} {label}".strip() for box, label in steps)
    return WaitPicture(boxes=placed, arrows=tuple(arrows), height=height, said=said)


def _mark_roots(boxes: list[_Pending], verdict: Verdict, circle_from: int | None) -> None:
    """Mark the culprits' boxes as roots, or the last one, in which the chain ends, where no culprit
    is among them. Where nobody is to blame, none is marked: the chain only ends there."""
    named = {one.label: one for one in verdict.culprits}
    named |= {one.actor: one for one in verdict.culprits if one.actor}
    for number, box in enumerate(boxes):
        culprit = named.get(box.title)
        if culprit is not None and (circle_from is None or number >= circle_from):
            box.kind = "root"
            box.lines = _about([culprit], title=box.title)
    nobody = verdict.kind == "unknown" and not verdict.culprits
    if not nobody and all(box.kind != "root" for box in boxes):
        boxes[-1].kind = "root"
        boxes[-1].lines = _about(list(verdict.culprits[:1]), title=boxes[-1].title)


def _of_ranks(verdict: Verdict, label: str) -> WaitPicture:
    """The picture for ranks; ``label`` is shown between the waiting ranks and those they wait
    for."""
    roots: dict[str, list[Culprit]] = {}
    for one in verdict.culprits:
        roots.setdefault(one.reason, []).append(one)
    named = {str(one.rank) for one in verdict.culprits}
    boxes, dashed = [], []
    for line in verdict.waiting[:MOST_CLASSES]:
        who, _, what = line.partition(": ")
        match = _FOR_RANKS.match(what)
        dashed.append(match is not None and named.isdisjoint(match["ranks"].split(", ")))
        if match is not None:
            awaited = name_ranks(int(rank) for rank in match["ranks"].split(", "))
            what = f"waits for {awaited} in {what[match.end() :]}"
        boxes.append(_Pending(who, [what] if what else []))
    if len(verdict.waiting) > MOST_CLASSES:
        more = len(verdict.waiting) - MOST_CLASSES
        boxes.append(_Pending(f"… {more} more …", kind="gap"))
        dashed.append(True)
    waiters = len(boxes)
    for alike in list(roots.values())[:MOST_CLASSES]:
        boxes.append(_Pending(_all_of(alike), kind="root"))
        boxes[-1].lines = _about(alike, title=boxes[-1].title)
    if len(roots) > MOST_CLASSES:
        boxes.append(_Pending(f"… {len(roots) - MOST_CLASSES} more …", kind="gap"))
    gaps = [GAP] * (len(boxes) - 1)
    gaps[waiters - 1] = 2 * LINE
    placed, height = _placed(boxes, gaps)
    last, root = placed[waiters - 1], placed[waiters]
    arrows = tuple(
        DrawnArrow(start=box.middle, end=root.middle, back=True, dashed=indirect)
        for box, indirect in zip(placed[:waiters], dashed, strict=True)
    )
    arrows += (DrawnArrow(start=last.y + last.height, end=root.y, label=label, head=False),)
    ends = ", ".join(box.title for box in placed[waiters:])
    said = "; ".join(box.whole for box in placed[:waiters]) + f"; what holds them up: {ends}"
    return WaitPicture(boxes=placed, arrows=arrows, height=height, said=said)


def _all_of(alike: list[Culprit]) -> str:
    ranks = [one.rank for one in alike if one.rank is not None]
    if len(ranks) == len(alike):
        return name_ranks(ranks)
    names = list(dict.fromkeys(one.label or one.host for one in alike))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _about(alike: list[Culprit], title: str) -> list[str]:
    """Where it is, and what is wrong with it."""
    if not alike:
        return []
    first, lines = alike[0], []
    hosts = list(dict.fromkeys(one.host for one in alike if one.host and one.host != title))
    where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} nodes" if hosts else ""
    pid = f"pid {first.pid}" if len(alike) == 1 and first.pid is not None else ""
    gpu = f"GPU {first.gpu}" if len(alike) == 1 and first.gpu else ""
    rank = first.label if first.rank is not None and title == first.actor else ""
    beside = first.method or (first.actor if first.actor != title else "")
    if told := " · ".join(filter(None, (rank, beside, where, pid, gpu))):
        lines.append(told)
    if first.reason and first.reason != title:
        lines.append(first.reason)
    return lines


def _placed(boxes: list[_Pending], gaps: list[float] | list[int]) -> tuple[
    tuple[DrawnBox, ...], float
]:  # fmt: skip
    placed, y = [], 2.0
    for number, box in enumerate(boxes):
        lines = [part for line in box.lines for part in wrapped(one_line(line), TEXT_COLUMNS, 2)]
        height = 2 * PAD + LINE * (1 + len(lines))
        whole = one_line(" · ".join([box.title, *box.lines]), 300)
        title = _cut(box.title, TEXT_COLUMNS - 8)
        placed.append(
            DrawnBox(
                y=y, height=height, title=title, lines=tuple(lines), whole=whole, kind=box.kind
            )
        )
        y += height + (gaps[number] if number < len(gaps) else 0)
    return tuple(placed), y + 2.0


def columns(text: str) -> int:
    """How wide a text is, in columns of a terminal: wide letters of East Asia take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _cut(text: str, most: int) -> str:
    return wrapped(one_line(text), most, 1)[0] if text else ""


def wrapped(text: str, most: int, lines: int) -> list[str]:
    """The text in a limited number of lines and columns, broken at spaces if there are any; if text
    is left over, it ends in "…".

    >>> wrapped("sleeping in score (reward.py:88)", 20, 2)
    ['sleeping in score', '(reward.py:88)']
    """
    found: list[str] = []
    rest = text
    while rest and len(found) < lines:
        fits = _fitting(rest, most)
        if fits == len(rest):
            found.append(rest)
            return found
        space = rest.rfind(" ", most // 2, fits + 1)
        if len(found) == lines - 1:
            return [*found, rest[: max(1, fits - 1)].rstrip() + "…"]
        cut = space if space > 0 else fits
        found.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return found or [""]


def _fitting(text: str, most: int) -> int:
    """How many of its characters fit."""
    width = 0
    for number, sign in enumerate(text):
        width += columns(sign)
        if width > most:
            return max(1, number)
    return len(text)
