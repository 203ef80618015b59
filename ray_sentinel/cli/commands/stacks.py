"""Show where every process of the running jobs stands, merged, and who waits for whom.

Asks Ray which calls have not ended, and asks the agent of each node for the stacks of the jobs'
drivers, actors and workers, twice, a second apart. Nothing is paused.

Exit codes: 0 nothing was found that cannot go on; 1 calls wait for each other in a circle, or a
process that others have called or wait for is stopped, holds its GIL or is blocked in the kernel;
2 wrong usage; 3 no cluster can be reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel.cli.options import add_common
from ray_sentinel.cli.output import Printer, print_json, text_printer
from ray_sentinel.evidence.stacks.tree import classes, merge, render
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.text import counted, one_line
from ray_sentinel.waitgraph.picture import ClusterPicture, JobPicture, WaitRoot

_LONGEST = 20_000
"""Most characters of a line that names parts of a program, such as a chain of waits; the rest is
cut off."""
_CANNOT_GO_ON = ("broken", "circle")
_STANDS = ("standing", "unheld", "complete", "mute", "idle")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument(
        "--job",
        default="",
        metavar="ID",
        help="Ray's id of the job to show, in hex (default: all running jobs)",
    )


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    from ray_sentinel.actors.coordinator.gathering.job_stacks import inspect_jobs
    from ray_sentinel.actors.deployment import cluster

    with cluster.connect(args.address) as ray:
        found = inspect_jobs(ray)
    found = msgspec.structs.replace(
        found, jobs=tuple(job for job in found.jobs if args.job in ("", job.job))
    )
    if args.json:
        print_json(_for_programs(found))
    else:
        _print(found, text_printer())
    return 1 if any(root.kind in _CANNOT_GO_ON for job in found.jobs for root in job.roots) else 0


def _for_programs(found: ClusterPicture) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(found)
    for job in told["jobs"]:
        del job["facts"]
        for root in job["roots"]:
            del root["waiting"]  # there may be thousands
            del root["fault"]
    return told


def _print(found: ClusterPicture, say: Printer) -> None:
    for number, job in enumerate(found.jobs):
        if number:
            say("")
        _print_job(job, found.time, say)
    if not found.jobs:
        say("no job runs")
    for note in found.notes:
        say(f"  ! {_flat(note)}", "yellow")


def _print_job(job: JobPicture, now: float, say: Printer) -> None:
    age = "" if job.started is None else f", running for {_age(now - job.started)}"
    say(f"job {job.job}: {counted(len(job.processes), 'process', 'es')}{age}", "bold")
    say(f"  {_flat(job.command)}")
    for driver in job.processes:
        if driver.role == "driver":
            at = f" in {driver.place}" if driver.place else ""
            doing = f"{driver.activity}{at}" if driver.activity else driver.problem
            say(f"  driver on {driver.host}, pid {driver.pid}: {_flat(doing)}")
    say("who waits for whom:" if job.roots else "nobody was seen to wait for anybody", "bold")
    for root in sorted(job.roots, key=_urgency):
        _print_root(root, say)
    if not job.facts:
        return
    found = classes(job.facts)
    labels = {ProcessId(one.host, one.pid): _flat(one.label) for one in job.processes}
    of, at = counted(len(job.facts), "process", "es"), counted(len(found), "place")
    say(f"stacks of {of} at {at}:", "bold")
    text = render(merge(found), found, naming=lambda members: _names(members, labels))
    for line in text.splitlines():
        say(line)
    for one in job.processes:
        if one.problem:
            text = _flat(f"{one.label} ({one.host} pid {one.pid}): {one.problem}")
            say(f"  ! {text}", "yellow")


def _print_root(root: WaitRoot, say: Printer) -> None:
    others = root.waiters - 1
    more = f" ({others} more wait{'s' * (others == 1)} for it)" if others > 0 else ""
    say(f"  {_flat(root.sentence)}{more}", ("red", "yellow", "")[_urgency(root)])


def _flat(text: str) -> str:
    """``text`` on one line: a name of a program's choice adds none."""
    return one_line(text, _LONGEST)


def _urgency(root: WaitRoot) -> int:
    """0 for what cannot go on, 1 for what stood still, 2 for what works."""
    return 0 if root.kind in _CANNOT_GO_ON else 1 if root.kind in _STANDS else 2


def _names(members: Iterable[StackFact], labels: Mapping[ProcessId, str]) -> str:
    """What the processes are called, with the numbers of one class together.

    >>> labels = {ProcessId("n", pid): name for pid, name in enumerate(("driver", "A 0", "A 1"))}
    >>> _names([StackFact(process=process) for process in labels], labels)
    'A 0, 1; driver'
    """
    groups: dict[str, list[str]] = {}
    for fact in members:
        place = ProcessId(fact.process.host, fact.process.pid)
        name, _, number = labels.get(place, f"pid {place.pid}").rpartition(" ")
        if name and number.isascii() and number.isdigit():
            groups.setdefault(name, []).append(number)
        else:
            groups.setdefault(labels.get(place, f"pid {place.pid}"), [])
    return "; ".join(
        f"{name} {', '.join(sorted(numbers, key=int))}" if numbers else name
        for name, numbers in sorted(groups.items())
    )


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
