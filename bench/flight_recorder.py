"""How fast, and how exactly, flight-recorder dumps are explained.

    python bench/flight_recorder.py speed [--ranks 128 1024 8192] [--entries 2000]
    python bench/flight_recorder.py exact [--seeds 10] [--format 2.9]
    python bench/flight_recorder.py drawn [--seeds 40]
    python bench/flight_recorder.py travel [--ranks 1000] [--entries 2000] [--forms whole judged]
    python bench/flight_recorder.py beside [--seeds 3] [--dumps DIR=1,5 ...]

``speed`` writes dumps of a job (tensor 8 × data, a full ring each) with one stopped rank to a
temporary folder, explains them in a fresh process as the command line does, and prints seconds and
peak memory. ``travel`` prints how large a rank's dump is as it was written and in the forms in
which nodes send it (``--forms``), and what explaining each costs a process that holds those of all
ranks, as the coordinator does. ``exact`` explains simulated hangs and prints, for each layout and
fault, the per cent of exact answers, and in how many sets an innocent was named; ``drawn`` does the
same for jobs drawn at random by another generator, in several formats. ``beside`` explains
simulated hangs, and labelled folders given as DIR=CULPRITS, with ray-sentinel and with PyTorch's
own analyzer (torch.distributed.flight_recorder.fr_trace), and counts culprits found, innocents
named, exact answers and seconds of both.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import pickle
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.evidence.flight_recorder.reduced import Form, reduce
from ray_sentinel.waitgraph.recorder import explain
from tests.support.recorder_fleet import cases as fleet
from tests.support.recorder_fleet.cases import make
from tests.support.recorder_fleet.write import HANDS, dumps
from tests.support.recorder_sim.dumps import FORMATS, NCCL, write
from tests.support.recorder_sim.faults import FAULTS, simulate
from tests.support.recorder_sim.program import LAYOUTS

DRAWN = tuple(fault for fault in fleet.FAULTS if fault not in ("outside", "healthy"))
TP = 8
CULPRIT = 13
FLOAT = struct.Struct("<f")
LIMIT = 60
"""Seconds that the other analyzer is given for one set of dumps."""


def large_job(world: int, entries: int) -> Iterator[tuple[int, bytes]]:
    """Dumps of a job in which rank 13 stopped in its own code, from rings that have wrapped."""
    for rank, tree in large_job_trees(world, entries):
        yield rank, pickle.dumps(tree, protocol=2)


def large_job_trees(
    world: int, entries: int, only: Iterable[int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same before PyTorch pickles it; ``only``: for these ranks."""
    names = {"world": ("0", "default_pg", list(range(world)))}
    for base in range(0, world, TP):
        names[f"tp{base}"] = (str(1 + base // TP), "TENSOR", list(range(base, base + TP)))
    for place in range(TP):
        ranks = list(range(place, world, TP))
        names[f"dp{place}"] = (str(1 + world // TP + place), "DATA", ranks)
    texts = {key: str(ranks) for key, (_, _, ranks) in names.items()}
    for rank in range(world) if only is None else only:
        mine = ["world", f"tp{rank // TP * TP}", f"dp{rank % TP}"]
        rows, status = _ring(rank, mine, names, entries)
        groups = {
            names[key][0]: {"name": names[key][0], "desc": names[key][1], "ranks": texts[key]}
            for key in mine
        }
        yield (
            rank,
            {
                "version": "2.9",
                "pg_config": groups,
                "nccl_version": "2.27.3",
                "pg_status": status,
                "entries": rows,
            },
        )


def timed(tree: dict[str, Any], dice: random.Random) -> bytes:
    """A dump whose calls came when a clock says, and took as long as a device that was timed says:
    in 32 bits, as PyTorch keeps it."""
    for row in tree["entries"]:
        row["time_created_ns"] += dice.randrange(1_000_000)
        (milliseconds,) = FLOAT.unpack(FLOAT.pack(dice.random()))
        row["duration_ms"] = milliseconds if row["state"] == "completed" else None
    return pickle.dumps(tree, protocol=2)


def _ring(
    rank: int, mine: list[str], names: Mapping[str, Any], entries: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The last calls of one rank: 40 in the tensor group, one in the data group, one of all."""
    pattern = [1] * 40 + [2, 0]
    steps = entries // len(pattern) + 2
    calls = pattern * steps
    hung = rank // TP == CULPRIT // TP
    stop = len(calls) - 20
    if rank == CULPRIT:
        calls = calls[:stop]
    done_until = stop if hung else len(calls) - 1
    counts = [5000, 90_000, 7000]
    enqueued, completed = list(counts), list(counts)
    rows = []
    for index, place in enumerate(calls):
        counts[place] += 1
        done = index < done_until and not (place == 2 and index >= len(pattern) * steps - 2)
        enqueued[place] = counts[place]
        completed[place] = counts[place] if done else completed[place]
        rows.append(_row(index, place, counts[place], done, names[mine[place]]))
    status = {
        str(place): {
            "last_enqueued_collective": enqueued[place],
            "last_started_collective": -1,
            "last_completed_collective": completed[place],
        }
        for place in range(3)
    }
    return rows[-entries:], status


def _row(index: int, place: int, seq: int, done: bool, group: tuple[str, str, Any]) -> Any:
    time_ns = 1_758_580_156_000_000_000 + index * 1_000_000
    op = ("all_reduce", ("_all_gather_base", "_reduce_scatter_base")[index % 2], "all_reduce")
    size = [[4096, 1, 5120]]
    return {
        "record_id": 100_000 + index,
        "pg_id": place,
        "process_group": group[:2],
        "thread_name": "python3",
        "thread_id": "23456244340032",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{op[place]}",
        "time_created_ns": time_ns,
        "input_sizes": size,
        "input_dtypes": ["BFloat16"],
        "output_sizes": size,
        "output_dtypes": ["BFloat16"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": time_ns + 700_000 if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def speed(ranks: list[int], entries: int) -> None:
    """Print seconds and peak memory by size."""
    print(
        f"{'ranks':>6} {'entries':>8} {'MB':>7} {'seconds':>8} {'CPU s':>8} {'peak MB':>8}"
        "  culprits"
    )
    for world in ranks:
        with tempfile.TemporaryDirectory() as folder:
            size = 0
            for rank, data in large_job(world, entries):
                (Path(folder) / f"trace_{rank}").write_bytes(data)
                size += len(data)
            said = subprocess.run(
                [sys.executable, __file__, "explain-one", folder],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            seconds, cpu, peak = map(float, said[:3])
            culprits = said[3]
            print(
                f"{world:>6} {entries:>8} {size / 1e6:>7.0f} {seconds:>8.2f} {cpu:>8.2f} "
                f"{peak:>8.0f}  {culprits}",
                flush=True,
            )


def explain_one(folder: str) -> None:
    """In a process of its own: seconds, CPU seconds, peak memory in MB, culprits."""
    from ray_sentinel.cli.recorder_files import find

    started = time.perf_counter()
    files = find([folder])
    facts = explain(files.dumps(), world_size=files.world_size)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        seconds,
        time.process_time(),
        peak,
        ",".join(str(culprit.rank) for culprit in facts.culprits) or "none",
    )


def travel(world: int, entries: int, forms: list[str]) -> None:
    """Print bytes a rank, and CPU seconds and memory of the process that holds all dumps."""
    print(f"{'form':<10} {'bytes a rank':>13} {'CPU s':>8} {'peak MB':>8}  culprits")
    for form in forms:
        said = subprocess.run(
            [sys.executable, __file__, "hold-all", form, str(world), str(entries)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        print(
            f"{form:<10} {float(said[0]):>13.0f} {float(said[1]):>8.2f} {float(said[2]):>8.0f}"
            f"  {said[3]}",
            flush=True,
        )


def hold_all(form: str, world: int, entries: int) -> None:
    """In a process of its own: bytes a rank, CPU seconds, peak memory in MB more than before any
    dump, culprits."""
    dice = random.Random(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = {}
    for rank, data in large_job(world, entries):
        written = timed(pickle.loads(data), dice)  # noqa: S301
        held[rank] = written if form == "raw" else reduce(written, cast(Form, form))
    started = time.process_time()
    facts = explain(held, world_size=world)
    seconds = time.process_time() - started
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        sum(map(len, held.values())) / world,
        seconds,
        peak,
        ",".join(str(culprit.rank) for culprit in facts.culprits) or "none",
    )


def exact(seeds: int, style: str) -> None:
    """Print the share of exact answers by layout and fault."""
    faults = [fault for fault in FAULTS if fault not in ("none", "outside", "device frozen")]
    print(f"{'per cent exact':<16}" + "".join(f"{layout:>11}" for layout in LAYOUTS))
    innocents = sets = 0
    for fault in faults:
        cells = []
        for layout in LAYOUTS:
            right = total = 0
            for seed in range(seeds):
                case = simulate(layout, fault, 10_000 + seed)
                if not (case.hangs and case.culprits):
                    continue
                named = ours(write(case.machine, FORMATS[style]))
                total += 1
                right += named == case.culprits
                innocents += bool(named - case.culprits)
            sets += total
            cells.append(f"{100 * right / total:>11.0f}" if total else f"{'-':>11}")
        print(f"{fault:<16}" + "".join(cells))
    print(f"innocents named in {innocents} of {sets} sets")


def ours(given: dict[int, bytes]) -> set[int]:
    """The ranks that ray-sentinel names."""
    return {culprit.rank for culprit in explain(given).culprits}


def theirs(given: dict[int, bytes]) -> set[int]:
    """The ranks that PyTorch's analyzer names, as missing or as culprits; none if it fails."""
    from torch.distributed.flight_recorder import fr_trace

    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("Flight Recorder")
    logger.handlers = [handler]
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        for rank, data in given.items():
            (Path(folder) / f"trace_{rank}").write_bytes(data)
        signal.alarm(LIMIT)
        try:
            fr_trace.main([folder, "-p", "trace_"])
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # It raises whatever it stumbles over: that counts as its answer.
            said.write(f"failed: {error!r}")
        finally:
            signal.alarm(0)
    text = said.getvalue()
    named = {int(rank) for rank in re.findall(r"Culprit rank (\d+)", text)}
    for group in re.findall(r"missing ranks: \{([^}]*)\}", text):
        named |= {int(rank) for rank in group.split(",") if rank.strip()}
    return named


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError(f"no answer in {LIMIT} s")


def cases(seeds: int, labelled: list[str]) -> Iterator[tuple[str, dict[int, bytes], set[int]]]:
    """(label, dumps, culprits) of labelled folders and simulated hangs."""
    for item in labelled:
        folder, _, ranks = item.rpartition("=")
        found = {
            int(match[1]): path.read_bytes()
            for path in sorted(Path(folder).iterdir())
            if (match := re.search(r"(\d+)$", path.name))
        }
        yield "labelled", found, {int(rank) for rank in ranks.split(",") if rank}
    for layout in LAYOUTS:
        for fault in FAULTS:
            for seed in range(seeds):
                case = simulate(layout, fault, seed)
                if case.hangs and case.culprits:
                    yield f"listed: {fault}", write(case.machine, NCCL), set(case.culprits)
    for fault in DRAWN:
        for seed in range(5 * seeds):
            drawn = make(fault, seed)
            if drawn.culprits and drawn.job.hangs:
                yield f"drawn: {fault}", dumps(drawn.job, HANDS["2.4"]), set(drawn.culprits)


def drawn_table(seeds: int) -> None:
    """Print the share of exact answers for jobs drawn at random, by fault and format."""
    hands = ("2.2", "2.5", "2.9", "2.10", "short")
    print(f"{'per cent exact':<18}" + "".join(f"{hand:>10}" for hand in hands))
    innocents = sets = 0
    for fault in DRAWN:
        cells = []
        for hand in hands:
            right = total = 0
            for seed in range(1000, 1000 + seeds):
                case = make(fault, seed)
                if not (case.culprits and case.job.hangs):
                    continue
                named = ours(dumps(case.job, HANDS[hand]))
                total += 1
                right += named == case.culprits
                innocents += bool(named - case.culprits)
            sets += total
            cells.append(f"{100 * right / total:>10.0f}")
        print(f"{fault:<18}" + "".join(cells))
    print(f"innocents named in {innocents} of {sets} sets")


def beside(seeds: int, labelled: list[str]) -> None:
    """Print both analyzers' scores, by fault."""
    scores: dict[tuple[str, str], list[float]] = {}
    for label, given, culprits in cases(seeds, labelled):
        for name, analyzer in (("ray-sentinel", ours), ("fr_trace", theirs)):
            started = time.perf_counter()
            named = analyzer(given)
            seconds = time.perf_counter() - started
            for key in (label, "all"):
                score = scores.setdefault((key, name), [0, 0, 0, 0, 0, 0.0])
                found = (1, len(culprits), len(named & culprits), len(named - culprits))
                for place, value in enumerate((*found, named == culprits, seconds)):
                    score[place] += value
    head = ("sets", "culprits", "found", "innocents", "exact", "seconds")
    print(f"{'fault':<18}{'analyzer':<14}" + "".join(f"{title:>10}" for title in head))
    for (label, name), score in sorted(scores.items()):
        values = "".join(f"{value:>10.0f}" for value in score[:5])
        print(f"{label:<18}{name:<14}{values}{score[5]:>10.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--ranks", type=int, nargs="+", default=[128, 1024])
    fast.add_argument("--entries", type=int, default=2000)
    right = commands.add_parser("exact")
    right.add_argument("--seeds", type=int, default=10)
    right.add_argument("--format", choices=FORMATS, default="2.9")
    drawn = commands.add_parser("drawn")
    drawn.add_argument("--seeds", type=int, default=40)
    side = commands.add_parser("beside")
    side.add_argument("--seeds", type=int, default=1)
    side.add_argument("--dumps", nargs="*", default=[], metavar="DIR=CULPRITS")
    far = commands.add_parser("travel")
    far.add_argument("--ranks", type=int, default=1000)
    far.add_argument("--entries", type=int, default=2000)
    far.add_argument("--forms", nargs="+", default=["raw", "whole", "judged"])
    hold = commands.add_parser("hold-all")
    hold.add_argument("form")
    hold.add_argument("ranks", type=int)
    hold.add_argument("entries", type=int)
    one = commands.add_parser("explain-one")
    one.add_argument("folder")
    args = parser.parse_args()
    if args.command == "speed":
        speed(args.ranks, args.entries)
    elif args.command == "travel":
        travel(args.ranks, args.entries, args.forms)
    elif args.command == "hold-all":
        hold_all(args.form, args.ranks, args.entries)
    elif args.command == "exact":
        exact(args.seeds, args.format)
    elif args.command == "drawn":
        drawn_table(args.seeds)
    elif args.command == "beside":
        beside(args.seeds, args.dumps)
    else:
        explain_one(args.folder)


if __name__ == "__main__":
    main()
