"""What every judge says about every case in the repository, and what a change of a judge changes.

    python bench/judges.py [--seeds 2] [--only recorder ray] [--save FILE] [--against FILE]
                           [--without-text | --names-only]

Sets are recorder dumps (of real jobs, listed and drawn), stacks, answers of NCCL RAS, logs, stories
of jobs of ranks and of Ray jobs played through the engine, and recorded event logs. Printed for
each corpus: how many sets, in how many exactly the culprits were named, in how many an innocent, of
how many the kind was right (where the truth is known), and in how many nobody was named.
``--against`` a file that ``--save`` wrote with other code prints every set whose culprits, kind,
confidence, reasons or next steps differ from then, and ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import importlib
import pkgutil
import random
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.actors.coordinator.event_log.log import read_segment
from ray_sentinel.engine.engine import Engine
from ray_sentinel.evidence import stacks
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Culprit
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph import ras, recorder
from ray_sentinel.waitgraph import stacks as judge_of_stacks
from ray_sentinel.waitgraph.confidence import of_tool
from ray_sentinel.waitgraph.recorder_failed import explain_failed
from tests.support import log_cases
from tests.support.engine_sim import Sim
from tests.support.log_cases.parts import ANYBODY, NOBODY
from tests.support.log_corpus.layouts import LAYOUTS as LOG_LAYOUTS
from tests.support.log_corpus.scenarios import SCENARIOS
from tests.support.ras_sim.faults import PERSISTENT
from tests.support.ras_sim.job import Job as RasJob
from tests.support.ras_sim.render import as_json, as_text
from tests.support.ray_stories import stories
from tests.support.recorder_fleet import cases as fleet
from tests.support.recorder_fleet.write import HANDS, dumps
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import FAULTS, simulate
from tests.support.recorder_sim.program import LAYOUTS

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests/fixtures"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One set: the verdict on it, and the truth, if that is known."""

    corpus: str
    name: str
    named: list[str]
    kind: str
    confidence: float
    text: list[str] = []
    """Reasons and next steps."""
    truth: list[str] | None = None
    kinds: list[str] | None = None
    """Any of them is right."""

    def answer(self, *, text: bool) -> tuple[list[str], str, float, list[str]]:
        """What must not change, with or without reasons and next steps."""
        return self.named, self.kind, self.confidence, self.text if text else []

    @property
    def who(self) -> tuple[list[str], str]:
        """Whom it names, and for what."""
        return self.named, self.kind


Asked = Callable[[], Said]
"""A set that is loaded; called, it is judged."""


def _of_recorders(
    corpus: str,
    name: str,
    judge: Callable[[], RecorderFacts],
    truth: Collection[int] | None,
    kind: str = "",
) -> Said:
    facts = judge()
    return Said(
        corpus=corpus,
        name=name,
        named=sorted(str(one.rank) for one in facts.culprits),
        kind=facts.kind,
        confidence=of_tool(facts),
        text=[*(f"{one.kind}: {one.reason}" for one in facts.culprits), *facts.evidence],
        truth=None if truth is None else sorted(map(str, truth)),
        kinds=[kind] if kind else None,
    )


REAL_RECORDERS: dict[str, tuple[set[int], str]] = {
    "gloo_sleeper": ({2}, "not-enqueued"),
    "gloo_left_out": ({3}, "collective-mismatch"),
    "gloo_mismatch": ({1}, "collective-mismatch"),
    "gloo_two_groups": ({0}, "not-enqueued"),
    "gloo_pipeline": (set(), "cannot-tell"),
    "gloo_outside": (set(), "waiting-outside"),
    "gloo_stage_skips": ({2}, "collective-mismatch"),
    "gloo_left_loop": ({5}, "collective-mismatch"),
}
FALLEN = {
    "gloo_failed_shape": (2,),
    "gloo_failed_dtype": (2,),
    "gloo_failed_small": (4,),
    "gloo_failed_row": (5,),
    "gloo_failed_rowsmall": (4,),
    "gloo_failed_ahead": (7,),
    "gloo_failed_routed": (1, 2, 3, 6, 7),
}
"""The ranks that gloo ended for what they were sent; rank 4 sent it, or as ``WRONG`` says."""
WRONG = {"gloo_failed_ahead": 6}


def _dumps(folder: Path) -> dict[int, bytes]:
    files = folder.glob("trace_*.json")
    return {int(file.stem.removeprefix("trace_")): file.read_bytes() for file in files}


def recorder_real(_: int) -> Iterator[Asked]:
    """Recorders of real jobs that hang or failed, and of simulated ones in which an innocent was
    once named."""
    for folder in sorted((FIXTURES / "flight_recorder").glob("gloo_*")):
        name, given = folder.name, _dumps(folder)
        if name in FALLEN:
            judge = partial(explain_failed, given, overrun=FALLEN[name], world_size=8)
            truth, kind = {WRONG.get(name, 4)}, "collective-mismatch"
        else:
            judge = partial(recorder.explain, given, world_size=len(given))
            truth, kind = REAL_RECORDERS[name]
        yield partial(_of_recorders, "recorder: real", name, judge, truth, kind)
    for path in sorted((FIXTURES / "flight_recorder/misled").glob("*.json.gz")):
        case = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        given = {int(rank): msgspec.json.encode(dump) for rank, dump in case["dumps"].items()}
        judge, name = partial(recorder.explain, given), path.name.split(".")[0]
        yield partial(_of_recorders, "recorder: misled", name, judge, case["culprits"])


def recorder_made(seeds: int) -> Iterator[Asked]:
    """Recorders of simulated jobs: layouts from a list, and drawn at random by another
    generator."""
    for layout in LAYOUTS:
        for fault in FAULTS:
            for seed in range(seeds):
                case = simulate(layout, fault, 10_000 + seed)
                judge = partial(recorder.explain, write(case.machine, NCCL))
                name = f"{layout}/{fault}/{seed}"
                yield partial(_of_recorders, "recorder: listed", name, judge, case.culprits)
    for fault in fleet.FAULTS:
        for seed in range(4 * seeds):
            hand = ("2.2", "2.4", "2.9", "2.10")[seed % 4]
            drawn = fleet.make(fault, 1000 + seed)
            judge = partial(recorder.explain, dumps(drawn.job, HANDS[hand]))
            name = f"{fault}/{seed}"
            yield partial(_of_recorders, "recorder: drawn", name, judge, drawn.culprits)


REAL_STACKS = {
    "gloo_plain": (10263, "host-stuck"),
    "gloo_ddp": (10331, "host-stuck"),
    "gloo_async": (10398, "host-stuck"),
    "gloo_mismatch": (10574, "collective-mismatch"),
}


def stacks_real(_: int) -> Iterator[Asked]:
    """Stacks of real jobs, once and twice; and of single processes, of which none must be named."""
    for job, (pid, kind) in REAL_STACKS.items():
        for folder in sorted((FIXTURES / "stacks" / job).glob("[!g]*")):
            facts = [fact for path in sorted(folder.iterdir()) for fact in _facts(path)]
            for times in (1, 2):
                name = f"{job}/{folder.name} x{times}"
                rounds = [facts] * times
                yield partial(_of_stacks, "stacks: jobs", name, rounds, [str(pid)], [kind])
    for path in sorted((FIXTURES / "stacks/single").iterdir()):
        if found := _facts(path):
            yield partial(_of_stacks, "stacks: single", path.name, [found], None, None)


def _facts(path: Path) -> list[Any]:
    return [stacks.classify(one) for one in stacks.parse(path.read_bytes(), ProcessId("node1", 0))]


def _of_stacks(
    corpus: str, name: str, rounds: list[Any], truth: list[str] | None, kinds: list[str] | None
) -> Said:
    found = judge_of_stacks.explain(rounds)
    text = [*(one.reason for one in found.culprits), *(item.text for item in found.evidence)]
    return _of_processes(corpus, name, found, text, truth, kinds)


def _of_processes(
    corpus: str, name: str, found: Any, text: list[str], truth: list[str] | None, kinds: Any
) -> Said:
    """For judges that name processes: they are distinguished by their pids."""
    return Said(
        corpus=corpus,
        name=name,
        named=sorted(str(one.pid) for one in found.culprits),
        kind=found.kind,
        confidence=of_tool(found) if isinstance(found, RasFacts) else found.confidence,
        text=text,
        truth=truth,
        kinds=kinds,
    )


def ras_made(seeds: int) -> Iterator[Asked]:
    """RAS answers of simulated jobs, polled once and twice, as text and as JSON."""
    layouts = [(2, 4, "dp"), (4, 8, "dp"), (2, 4, "tp"), (4, 8, "tp"), (1, 8, "dp")]
    styles: dict[str, Callable[[RasJob], str]] = {"json": as_json, "text": as_text}
    for fault in PERSISTENT:
        for style, render in styles.items():
            for seed in range(len(layouts) * seeds):
                nodes, per_node, layout = layouts[seed % len(layouts)]
                if fault == "chain" and layout == "dp":
                    nodes, layout = max(nodes, 2), "tp"
                job = RasJob(seed, nodes, per_node, layout)
                job.run(job.random.randrange(20, 200))
                case = PERSISTENT[fault](job, job.random.randrange(len(job.peers)))
                polls = {"1": render(job).encode()}
                pids = [str(job.peers[world].pid) for world in sorted(case.culprits)]
                for again in (False, True):
                    if again:
                        job.wait(10)
                        polls["2"] = render(job).encode()
                    name = f"{fault}/{style}/{seed} x{1 + again}"
                    # One poll alone may rightly name nobody.
                    corpus = "ras: two polls" if again else "ras: one poll"
                    truth, kinds = sorted(pids), sorted(case.kinds)
                    yield partial(_of_ras, corpus, name, dict(polls), truth, kinds)


def ras_real(_: int) -> Iterator[Asked]:
    """RAS answers as they were published."""
    for path in sorted((FIXTURES / "nccl_ras").iterdir()):
        polls = {"1": path.read_bytes()}
        yield partial(_of_ras, "ras: published", path.name, polls, None, None)


def _of_ras(
    corpus: str, name: str, polls: dict[str, bytes], truth: list[str] | None, kinds: Any
) -> Said:
    facts = ras.explain(polls)
    text = [*(f"{one.kind}: {one.reason}" for one in facts.culprits), *facts.evidence]
    return _of_processes(corpus, name, facts, text, truth, kinds)


def logs_made(_: int) -> Iterator[Asked]:
    """Short logs, and whole ones with decoys and echoes."""
    for _, room, _ in pkgutil.iter_modules(log_cases.__path__):
        if room == "parts":
            continue
        cases = importlib.import_module(f"{log_cases.__name__}.{room}").CASES
        for about, case in cases.items():
            yield partial(_of_a_short_log, f"{room}: {about}", case)
    for name, scenario in sorted(SCENARIOS.items()):
        yield partial(_of_a_whole_log, name, scenario)


def _of_a_short_log(name: str, case: Any) -> Said:
    files = {"job.log": case.files} if isinstance(case.files, str) else case.files
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            path = Path(folder, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return _of_logs("logs: short", name, Path(folder), 0.0, case)


def _of_a_whole_log(name: str, scenario: Any) -> Said:
    job, truth = scenario(11)
    with tempfile.TemporaryDirectory() as folder:
        root = LOG_LAYOUTS["main"](job, Path(folder, "job"))
        now = job.now + (5 if truth.extra.get("live") else 10 * 86400)
        return _of_logs("logs: whole", name, root, now, truth)


def _of_logs(corpus: str, name: str, root: Path, now: float, true: Any) -> Said:
    answer = triage_path(root, _catalogue(), now=now)
    first = answer.culprits[0] if answer.culprits else None
    wanted = getattr(true, "culprit", None)
    truth: list[str] | None = None
    if wanted == NOBODY or getattr(true, "nobody", False):
        truth = []
    elif isinstance(wanted, dict) and wanted != ANYBODY and wanted.get("rank") is not None:
        truth = [str(wanted["rank"])]
    elif getattr(true, "rank", None) is not None:
        truth = [str(true.rank)]
    return Said(
        corpus=corpus,
        name=name,
        # The first one named: the others are not innocent, but fell with it.
        named=[str(first.rank)] if first is not None else [],
        kind=answer.kind,
        confidence=answer.confidence,
        text=[answer.summary.replace(str(root), ""), *answer.next_steps],
        truth=truth,
        kinds=[true.kind],
    )


@functools.cache
def _catalogue() -> Any:
    return load_catalogue()


RANK_STORIES: dict[str, tuple[Callable[[Sim], object], list[str], str]] = {
    "sleeps": (lambda sim: sim.stick(4), ["rank 4"], "host-stuck"),
    "reads": (lambda sim: sim.stick(4, activity="input-wait"), ["rank 4"], "input-wait"),
    "storage": (lambda sim: sim.stick(4, activity="storage-wait"), ["rank 4"], "storage-wait"),
    "lock": (lambda sim: sim.stick(4, activity="lock-wait"), ["rank 4"], "lock-deadlock"),
    "stopped": (lambda sim: sim.stick(2, state="T"), ["rank 2"], "rank-stopped"),
    "blocked": (lambda sim: sim.stick(3, state="D", wchan="nfs"), ["rank 3"], "kernel-blocked"),
    "spins": (
        lambda sim: sim.stick(1, spinning=True, activity="compute", active=True),
        ["rank 1"],
        "cpu-spin",
    ),
    "keeps the GIL": (
        lambda sim: sim.stick(
            1, interpreter="gil-held", holds_gil=True, active=False, activity="unknown"
        ),
        ["rank 1"],
        "gil-held",
    ),
    "two sleep": (lambda sim: (sim.stick(1), sim.stick(5)), ["rank 1", "rank 5"], "host-stuck"),
    "killed": (lambda sim: sim.end(0, signal=9), ["rank 0"], "rank-dead"),
    "raises": (lambda sim: sim.end(0, code=1, words="ValueError: x"), ["rank 0"], "rank-dead"),
    "leaves": (lambda sim: sim.end(5, code=0), ["rank 5"], "rank-dead"),
    "out of memory": (
        lambda sim: (sim.end(3, signal=9), sim.kernel_says_oom(3)),
        ["rank 3"],
        "oom-killed",
    ),
    "other call": (
        lambda sim: sim.stick(
            2,
            where=("main (train.py:1)", "barrier (distributed_c10d.py:7)"),
            activity="collective-wait",
            waits=True,
            operation="barrier",
        ),
        ["rank 2"],
        "collective-mismatch",
    ),
    "a node goes": (lambda sim: sim.dead_nodes.add("n1"), ["rank 2", "rank 3"], "node-lost"),
    "all wait outside": (lambda sim: setattr(sim, "held", True), [], "stall"),
    "healthy": (lambda sim: None, [], "none"),
}


def stories_of_ranks(_: int) -> Iterator[Asked]:
    """Jobs of ranks, simulated second by second, with and without records of their own."""
    for name, (play, truth, kind) in RANK_STORIES.items():
        for attached in (True, False):
            title = f"{name}, {'attached' if attached else 'found'}"
            played = partial(_played, play, attached)
            yield partial(_of_engine, "engine: ranks", title, played, truth, kind)


def _played(play: Callable[[Sim], object], attached: bool) -> Engine:
    sim = Sim(attached=attached)
    sim.run(30)
    play(sim)
    sim.run(120)
    return sim.engine


RAY_STORIES: dict[str, tuple[list[str], str]] = {
    "asleep": (["Rollout 0"], "actor-stuck"),
    "asleep_below_threads": (["Rollout 0"], "actor-stuck"),
    "spins": (["Rollout 0"], "cpu-spin"),
    "loops": (["Rollout 0"], "cpu-spin"),
    "driver_spins": (["driver"], "driver-stuck"),
    "driver_asleep": (["driver"], "driver-stuck"),
    "circle": (["Rollout 0", "Rollout 1"], "call-deadlock"),
    "circle_with_a_rank": (["Rollout 0", "rank 0"], "call-deadlock"),
    "stopped": (["Rollout 0"], "rank-stopped"),
    "blocked": (["Rollout 0"], "kernel-blocked"),
    "pending": ([], "pending"),
    "thread_spins": (["Rollout 0"], "actor-stuck"),
    "thread_stands": (["Rollout 0"], "actor-stuck"),
    "thread_stands_beside_others": (["Rollout 0"], "actor-stuck"),
    "no_worker": ([], "none"),
    "asked_meanwhile": (["Rollout 0"], "actor-stuck"),
    "event_loop_rests": (["Rollout 0"], "actor-stuck"),
    "group_full": (["Rollout 0"], "actor-stuck"),
    "library_function": (["ImplicitFunc 0"], "actor-stuck"),
    "served": (["ServeReplica:app:Model 0"], "actor-stuck"),
    "two_jobs": (["Rollout 0"], "actor-stuck"),
    "detached": (["Scorer 0"], "actor-stuck"),
    "compiled_graph": ([], "none"),
    "ends_unnoticed": (["Rollout 0"], "actor-dead"),
    "ranks_wait": (["Rollout 0"], "actor-stuck"),
    "one_of_many": (["Rollout 0"], "actor-stuck"),
    "back_to_back": ([], "none"),
    "now_and_then_a_long_one": ([], "none"),
    "device_hangs": (["Rollout 0"], "device-stuck"),
    "lock_holder_stands": (["Rollout 0"], "actor-stuck"),
    "lock_kept": (["Rollout 0"], "actor-stuck"),
    "lock_holder_works": ([], "none"),
}
"""Stories whose truth is written down; the others count only by the verdict on them."""


def stories_of_ray(_: int) -> Iterator[Asked]:
    """Jobs of actors and drivers."""
    for name, play in stories().items():
        truth, kind = RAY_STORIES.get(name, (None, ""))
        yield partial(_of_engine, "engine: Ray jobs", name, partial(_told, play), truth, kind)


def _told(play: Callable[[], Any]) -> Engine:
    engine: Engine = play().engine
    return engine


RECORDED: dict[str, tuple[list[str], str]] = {
    "crowded_evaluation": ([], "none"),
    "back_to_back_gpu_calls": (["Rollout 0"], "device-stuck"),
    "before_told": (["rank 2"], "host-stuck"),
    "before_states/open": (["rank 2"], "host-stuck"),
    "before_states/resolved": (["rank 2"], "host-stuck"),
}


def event_logs(_: int) -> Iterator[Asked]:
    """What coordinators wrote, played through the engine again."""
    for name, (truth, kind) in RECORDED.items():
        played = partial(_recorded, FIXTURES / "events" / name)
        yield partial(_of_engine, "engine: recorded", name, played, truth, kind)


def _recorded(place: Path) -> Engine:
    engine = Engine()
    for file in sorted(place.glob("*.jsonl.gz")) or [place.with_name(f"{place.name}.jsonl.gz")]:
        for event in read_segment(file)[1]:
            engine.handle(event)
    return engine


def _of_engine(
    corpus: str, name: str, played: Callable[[], Engine], truth: list[str] | None, kind: str
) -> Said:
    told = played().incidents()
    verdicts = [one.verdict for one in told if one.verdict is not None]
    return Said(
        corpus=corpus,
        name=name,
        named=sorted(_label(one) for verdict in verdicts for one in verdict.culprits),
        kind=" + ".join(one.kind for one in told) or "none",
        confidence=max((verdict.confidence for verdict in verdicts), default=0.0),
        text=[
            text
            for one in told
            for text in (
                f"{one.rule} {one.state} {one.confirmed_at}: {one.summary}",
                *(() if one.verdict is None else _texts(one.verdict)),
            )
        ],
        truth=truth,
        kinds=[kind] if kind else None,
    )


def _label(one: Culprit) -> str:
    return one.label or "node"


def _texts(verdict: Any) -> Iterator[str]:
    yield from (f"{_label(one)}: {one.reason}" for one in verdict.culprits)
    yield from (f"{item.source} {item.rank} {item.weight}: {item.text}"
                for item in verdict.evidence)  # fmt: skip
    yield from verdict.next_steps
    yield from verdict.waiting


CORPORA: dict[str, Callable[[int], Iterator[Asked]]] = {
    "recorder-real": recorder_real,
    "recorder-made": recorder_made,
    "stacks": stacks_real,
    "ras-real": ras_real,
    "ras-made": ras_made,
    "logs": logs_made,
    "ranks": stories_of_ranks,
    "ray": stories_of_ray,
    "recorded": event_logs,
}


def table(said: list[Said]) -> Iterator[str]:
    """One line for each corpus, and one for all."""
    head = ("sets", "with truth", "exact", "innocents", "kind right", "of", "nobody")
    yield f"{'corpus':<18}" + "".join(f"{title:>11}" for title in head)
    corpora = list(dict.fromkeys(one.corpus for one in said))
    for corpus in (*corpora, "all"):
        sets = [one for one in said if corpus in (one.corpus, "all")]
        known = [one for one in sets if one.truth is not None]
        kinds = [one for one in sets if one.kinds is not None]
        row = (
            len(sets),
            len(known),
            sum(one.named == one.truth for one in known),
            sum(bool(set(one.named) - set(one.truth or ())) for one in known),
            sum(one.kind in (one.kinds or ()) for one in kinds),
            len(kinds),
            sum(not one.named for one in sets),
        )
        yield f"{corpus:<18}" + "".join(f"{value:>11}" for value in row)


def changes(
    before: list[Said], now: list[Said], *, text: bool = True, names_only: bool = False
) -> Iterator[str]:
    """The verdicts that are different, missing or new; name by name. ``text``: also those of which
    only reasons or next steps are different. ``names_only``: only those with other names or kinds.
    """
    old = {(one.corpus, one.name): one for one in before}
    new = {(one.corpus, one.name): one for one in now}
    for key in {**old, **new}:
        was, is_ = old.get(key), new.get(key)
        title = ", ".join(key)
        if was is None or is_ is None:
            yield f"{title}: {'is new' if was is None else 'is no more'}"
        elif was.who == is_.who if names_only else was.answer(text=text) == is_.answer(text=text):
            continue
        else:
            truth = "" if is_.truth is None else f" (true: {','.join(is_.truth) or 'nobody'})"
            yield f"{title}: {_short(was)} -> {_short(is_)}{truth}"
            yield from (f"    - {line}" for line in was.text if line not in is_.text)
            yield from (f"    + {line}" for line in is_.text if line not in was.text)


def _short(one: Said) -> str:
    return f"{one.kind} {','.join(one.named) or 'nobody'} {one.confidence:.3f}"


def main() -> int:
    """Judge every set, print, and compare with earlier verdicts if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="FILE")
    parser.add_argument("--without-text", action="store_true", help="compare no sentences")
    parser.add_argument("--names-only", action="store_true", help="compare names and kinds only")
    parser.add_argument("--wrong", action="store_true", help="print the sets that are not right")
    args = parser.parse_args()
    said: list[Said] = []
    for name in args.only:
        started = time.process_time()
        random.seed(0)
        said += (judged() for judged in CORPORA[name](args.seeds))
        print(f"{name}: {time.process_time() - started:.1f} s of CPU", file=sys.stderr)
    print("\n".join(table(said)))
    if args.wrong:
        for one in said:
            if (one.truth is not None and one.named != one.truth) or (
                one.kinds is not None and one.kind not in one.kinds
            ):
                print(f"{one.corpus}, {one.name}: {_short(one)}, true: {one.truth} {one.kinds}")
    if args.save:
        args.save.write_bytes(msgspec.json.format(msgspec.json.encode(said), indent=1))
    if not args.against:
        return 0
    before = msgspec.json.decode(args.against.read_bytes(), type=list[Said])
    asked = {one.corpus for one in said}
    before = [one for one in before if one.corpus in asked]
    different = list(changes(before, said, text=not args.without_text, names_only=args.names_only))
    print("\n".join(different) or f"nothing is said otherwise than in {args.against}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
