"""What each step of judging is for: what is no longer right without it.

    python bench/ablation.py [--only NAME ...] [--seeds 2] [--drawn 60] [--no-stories]
        [--incidents LINES.jsonl=LOG_DIR ...] [--pairs] [--cases 3] [--jobs 2] [--save FILE]
        [--write]

One step after the other (``judging_steps``) is switched off in a process of its own, and the sets
that use it are judged again: those of ``judges``, jobs whose evidence is harmed as
``drawn_evidence`` does it, and what the fault suite has kept of its runs (``--incidents``, as for
``real_incidents``). Printed for each step: its lines; how many answers are no longer right, and how
many are only without it; in how many sets an innocent is named then, and in how many the kind of
fault is lost; how many answers differ where the truth is not written down; and the unit tests that
fail, where no set is judged worse: they tell stories, too, but a test of the step by itself fails
in any case. ``--pairs`` switches off any two of such steps, too: two of
which one is enough are one step. ``--write`` makes the table of docs/judging_steps.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import multiprocessing
import random
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, wraps
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from drawn_evidence import SOURCES, drawn
from judges import CORPORA, ROOT, Asked, Said
from judging_steps import STEPS, Step
from real_incidents import samples
from samples_of_verdicts import Sample

COSTLY = {"engine-ranks": 4, "engine-actors": 4}
"""Of these sources so many times fewer are drawn."""
NO_JUDGING = ("logs",)
"""What is judged without any of the steps."""
ROOMS = ("waitgraph", "evidence", "engine", "cli/test_explain_folder.py",
         "cli/test_explain_flight_recorder.py", "cli/test_explain_nccl_ras.py",
         "cli/test_explain_stacks.py")  # fmt: skip
"""The unit tests that tell stories of jobs."""
ENOUGH = 20
"""Answers that are no longer right, or accuse an innocent, after which no further set is judged."""
MOST_FAILURES = 5
"""Failing tests after which no further one is run."""
MOST_SECONDS = 60
"""Most seconds that one set or test may take: without a step, something may never end."""
DOCUMENT = ROOT / "docs/judging_steps.md"
MARK = "<!-- made by bench/ablation.py -->\n"
BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, TimeoutError, TypeError,
          ValueError)  # fmt: skip
"""How a judge may fail that lacks a step on which its others rely."""


# Steps on and off.


def switched(at: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace what is at "module:name" by what ``make`` makes of it; returns how to undo that."""
    where, _, name = at.partition(":")
    *owners, name = name.split(".")
    owner: Any = importlib.import_module(where)
    for one in owners:
        owner = getattr(owner, one)
    real = inspect.getattr_static(owner, name)
    setattr(owner, name, make(real))
    return partial(setattr, owner, name, real)


def lines_of(step: Step) -> int:
    """How many lines a step has; 0 for a row or a part of a function."""
    if step.part:
        return 0
    where, _, name = step.at.partition(":")
    found: Any = importlib.import_module(where)
    for one in name.split("."):
        found = inspect.getattr_static(found, one)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    return len(inspect.getsourcelines(found)[0]) if callable(found) else 0


class Traced:
    """Which steps something uses: those that answer otherwise than while they are off."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.used: set[str] = set()
        self._undo = [
            switched(step.used_in or step.at, partial(self._trace, step)) for step in steps
        ]

    def _trace(self, step: Step, real: Any) -> Any:
        if isinstance(real, property):
            return property(self._trace(step, real.fget))
        if isinstance(real, cached_property):
            return property(self._trace(step, real.func))
        if isinstance(real, staticmethod):
            return staticmethod(self._trace(step, real.__func__))
        notices = None if step.used_in else getattr(step.off, "notices", None)

        def noted(items: Iterable[Any], args: tuple[Any, ...]) -> Iterator[Any]:
            for item in items:
                if notices is None or notices(item, args):
                    self.used.add(step.name)
                yield item

        @wraps(real)
        def traced(*args: Any, **told: Any) -> Any:
            answer = real(*args, **told)
            if inspect.isgenerator(answer):
                return noted(answer, args)
            if notices is None or notices(answer, args):
                self.used.add(step.name)
            return answer

        return traced

    def of(self, ask: Callable[[], Any]) -> tuple[Any, frozenset[str]]:
        """What is answered, and the steps on the way to it."""
        self.used.clear()
        answer = ask()
        return answer, frozenset(self.used)

    def end(self) -> None:
        """Leave everything as it was."""
        for undo in reversed(self._undo):
            undo()


# Sets.


Ask = Callable[[], list[Said]]


class Asking(msgspec.Struct):
    """One set, or the runs of one log; what is said of it, and the steps that this takes."""

    ask: Ask
    said: list[Said]
    uses: frozenset[str]


def _from_sample(sample: Sample, corpus: str, name: str) -> Said:
    return Said(
        corpus=corpus,
        name=name,
        named=list(sample.named),
        kind=sample.kind,
        confidence=sample.confidence,
        truth=list(sample.truth),
    )


def _one(ask: Asked) -> list[Said]:
    return [ask()]


def _drawn(source: str, number: int) -> list[Said]:
    return [
        _from_sample(one, f"harmed: {source}", f"{number}.{at} {one.case}, {one.harm}")
        for at, one in enumerate(drawn(source, number))
    ]


def _incidents(given: str) -> list[Said]:
    lines, _, folder = given.partition("=")
    each = enumerate(samples(Path(lines), Path(folder)))
    return [
        _from_sample(one, "fault suite", f"{Path(lines).stem} {at} {one.case}, {one.harm}")
        for at, one in each
    ]


def sets(seeds: int, jobs: int, incidents: Iterable[str]) -> Iterator[Ask]:
    """All that is judged."""
    for name, corpus in CORPORA.items():
        if name not in NO_JUDGING:
            random.seed(0)
            for ask in corpus(seeds):
                yield partial(_one, ask)
    for source in SOURCES:
        if source not in NO_JUDGING:
            for number in range(jobs // COSTLY.get(source, 1)):
                yield partial(_drawn, source, number)
    for given in incidents:
        yield partial(_incidents, given)


# What is lost.


class Loss(msgspec.Struct, kw_only=True):
    """What is judged otherwise without a step, by corpus."""

    wrong: Counter[str] = msgspec.field(default_factory=Counter)
    """Answers that were right and are not: other culprits than the true ones, or none."""
    right: Counter[str] = msgspec.field(default_factory=Counter)
    """Answers that are right only without it."""
    innocents: Counter[str] = msgspec.field(default_factory=Counter)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    otherwise: Counter[str] = msgspec.field(default_factory=Counter)
    """Other names or kinds, where the truth is not written down, or neither is right."""
    cases: list[str] = []
    tests: list[str] = []
    used: int = 0
    """Sets on the way to whose answer it is."""

    @property
    def worse(self) -> bool:
        """Whether an answer is worse without it."""
        lost = (self.wrong, self.innocents, self.kinds)
        return bool(self.tests) or any(counted.total() for counted in lost)

    def compare(self, before: Iterable[Said], after: Iterable[Said]) -> None:
        """Note what is said of the same sets with the step, and without it."""
        old, new = ({(one.corpus, one.name): one for one in said} for said in (before, after))
        for key in {**old, **new}:
            either = old.get(key) or new[key]
            nothing = msgspec.structs.replace(either, named=[], kind="none")
            self._count(old.get(key, nothing), new.get(key, nothing))

    def _count(self, was: Said, now: Said) -> None:
        if was.who == now.who:
            return
        title = f"{was.corpus}, {was.name}: {was.kind} {','.join(was.named) or 'nobody'}"
        true = was.truth
        was_right, is_right = was.named == true, now.named == true
        self.wrong[was.corpus] += was_right and not is_right
        self.right[was.corpus] += is_right and not was_right
        accused = set(now.named) - set(was.named) - set(true or ())
        self.innocents[was.corpus] += true is not None and bool(accused)
        # Where a culprit is rightly named, the kind that is told is taken to be right.
        kinds = was.kinds or [was.kind] * (was_right and is_right)
        self.kinds[was.corpus] += was.kind in kinds and now.kind not in kinds
        self.otherwise[was.corpus] += true is None or not (was_right or is_right)
        told = "" if true is None else f" (true: {','.join(true) or 'nobody'})"
        self.cases.append(f"{title} -> {now.kind} {','.join(now.named) or 'nobody'}{told}")


FORKS = multiprocessing.get_context("fork")
ALL: list[Asking] = []
TESTS: dict[str, frozenset[str]] = {}
"""By each test the steps that it uses."""


def without(names: tuple[str, ...]) -> Loss:
    """What is lost without some steps. In a process of its own."""
    for name in names:
        switched(STEPS[name].at, STEPS[name].off)
    lost = Loss()
    signal.signal(signal.SIGALRM, _late)
    for one in ALL:
        if one.uses.isdisjoint(names):
            continue
        lost.used += 1
        signal.alarm(MOST_SECONDS)
        random.seed(0)
        try:
            now = one.ask()
        except BREAKS as error:
            now = []
            lost.cases.append(f"{one.said[0].corpus}: {type(error).__name__}: {error}")
        signal.alarm(0)
        lost.compare(one.said, now)
        if lost.wrong.total() + lost.innocents.total() >= ENOUGH:
            break
    mine = [test for test, uses in TESTS.items() if not uses.isdisjoint(names)]
    if mine and not (lost.wrong.total() or lost.innocents.total()):
        lost.tests = sorted(Pytest().run([*mine, f"--maxfail={MOST_FAILURES}"]))
    return lost


def _late(*_: object) -> None:
    raise TimeoutError("does not end")


class Pytest:
    """A plugin that notes which tests fail, and which steps each of them uses."""

    def __init__(self, traced: Traced | None = None) -> None:
        self._traced = traced
        self.failed: set[str] = set()
        self.uses: dict[str, frozenset[str]] = {}

    def run(self, arguments: Collection[str]) -> set[str]:
        """Run some tests; returns those that fail."""
        import pytest

        quiet = ["-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", f"--timeout={MOST_SECONDS}"]
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([*quiet, *arguments], plugins=[self])
        return self.failed

    def pytest_runtest_setup(self, item: Any) -> None:
        """Begin a test."""
        if self._traced is not None:
            self._traced.used.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note how it ended."""
        if report.failed:
            self.failed.add(report.nodeid)
        if self._traced is not None and report.when == "call" and report.passed:
            self.uses[report.nodeid] = frozenset(self._traced.used)


def traced_tests(rooms: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The steps that each test uses. In a process of its own."""
    plugin = Pytest(Traced(STEPS.values()))
    plugin.run([str(ROOT / "tests/unit" / room) for room in rooms])
    return plugin.uses


# What is printed.


def row(step: Step, lost: Loss) -> str:
    """The line of one step in the document."""
    counts = (
        lines_of(step),
        lost.used,
        lost.wrong.total(),
        lost.right.total(),
        lost.innocents.total(),
        lost.kinds.total(),
    )
    numbers = (f"{count or ''}" for count in counts)
    tests = ", ".join(dict.fromkeys(map(_test_name, lost.tests[:2])))
    return f"| {' | '.join((f'`{step.name}`', step.what, *numbers, tests))} |"


def _test_name(nodeid: str) -> str:
    return nodeid.rpartition("::")[2].partition("[")[0]


def document(found: Mapping[str, Loss]) -> str:
    """The tables, one for each room."""
    head = ("step", "what it does", "lines", "sets", "lost", "gained", "innocents", "kinds",
            "unit tests")  # fmt: skip
    rooms: dict[str, list[str]] = defaultdict(list)
    for name, lost in found.items():
        rooms[STEPS[name].room].append(row(STEPS[name], lost))
    parts = [
        "\n".join((f"\n## {room}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows))
        for room, rows in rooms.items()
    ]
    return MARK + "\n".join(parts) + "\n"


def told(name: str, lost: Loss, cases: int) -> Iterator[str]:
    """What is printed of one step."""
    mark = " " if lost.worse else "*"
    yield (
        f"{mark} {name}: used in {lost.used} sets; lost {lost.wrong.total()}, gained "
        f"{lost.right.total()}, innocents {lost.innocents.total()}, kinds {lost.kinds.total()}, "
        f"otherwise {lost.otherwise.total()}, tests {len(lost.tests)}"
    )
    yield from (f"      {case}" for case in lost.cases[:cases])
    yield from (f"      {test}" for test in lost.tests[:cases])


def main() -> int:
    """Judge all with every step, then without each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="steps, or rooms of steps")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--drawn", type=int, default=60, help="jobs of each source of harmed jobs")
    parser.add_argument("--incidents", nargs="+", default=(), metavar="LINES=LOG_DIR")
    parser.add_argument("--no-stories", action="store_true", help="run no unit tests")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--cases", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    known = STEPS.keys() | {step.room for step in STEPS.values()}
    if unknown := sorted({*(args.only or ())} - known):
        parser.error(f"--only: no step and no room is called {', '.join(unknown)}; see STEPS")
    load(args.seeds, args.drawn, args.incidents, tests=not args.no_stories)
    asked = [(n,) for n, step in STEPS.items() if not args.only or {n, step.room} & {*args.only}]
    lose = partial(losses, jobs=args.jobs, cases=args.cases)
    found = lose(asked)
    if args.pairs:
        quiet = [names[0] for names, lost in found.items() if not lost.worse]
        lose(list(_pairs(quiet)))
    steps = {names[0]: lost for names, lost in found.items()}
    if args.save:
        args.save.write_bytes(msgspec.json.format(msgspec.json.encode(steps), indent=1))
    if args.write:
        before = DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0]
        DOCUMENT.write_text(before + document(steps), encoding="utf-8")
    return 0


def load(seeds: int, jobs: int, incidents: Iterable[str], *, tests: bool) -> None:
    """Judge all with every step, and note which steps each answer takes."""
    traced = Traced(STEPS.values())
    for ask in sets(seeds, jobs, incidents):
        random.seed(0)
        said, uses = traced.of(ask)
        ALL.append(Asking(ask, said, uses))
    traced.end()
    print(f"{sum(len(one.said) for one in ALL)} sets", file=sys.stderr)
    if tests:
        with FORKS.Pool(1) as pool:
            TESTS.update(pool.apply(traced_tests, (ROOMS,)))
        print(f"{len(TESTS)} tests", file=sys.stderr)


def losses(asked: Sequence[tuple[str, ...]], jobs: int, cases: int) -> dict[tuple[str, ...], Loss]:
    """What is lost without each of these sets of steps, printed as it is found."""
    found: dict[tuple[str, ...], Loss] = {}
    with FORKS.Pool(jobs, maxtasksperchild=1) as pool:
        for names, lost in zip(asked, pool.imap(without, asked), strict=True):
            found[names] = lost
            if len(names) == 1 or lost.worse:
                print("\n".join(told(" + ".join(names), lost, cases)), flush=True)
    return found


def _pairs(quiet: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Any two steps of one room."""
    for pair in combinations(quiet, 2):
        if len({STEPS[name].room for name in pair}) == 1:
            yield pair


if __name__ == "__main__":
    sys.exit(main())
