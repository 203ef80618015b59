"""Check before a run, on every node at once, for what would make it hang or fail.

In a Ray cluster all nodes are examined, by a short-lived actor on each; without one, this machine
alone.

Exit codes: 0 all is well; 1 a warning or a failure (with --allow-warnings: failures only); 2 wrong
usage; 3 the named cluster cannot be reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.markup import escape

from ray_sentinel.cli.options import amount, positive
from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.cli.terminal import Console
from ray_sentinel.doctor.check import WORST_FIRST, Check, CheckResult, Cluster
from ray_sentinel.doctor.examine import DoctorFindings, examine
from ray_sentinel.doctor.plan import GIB, RunPlan
from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    where = parser.add_argument_group("where to look")
    where.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: RAY_ADDRESS, or else the one on this machine)",
    )
    where.add_argument(
        "--local", action="store_true", help="examine this machine only, without Ray"
    )
    needs = parser.add_argument_group("what the run needs")
    needs.add_argument("--nodes", type=int, metavar="N", help="nodes that must have joined")
    needs.add_argument(
        "--gpus", type=int, metavar="N", help="GPUs that the whole cluster must have"
    )
    needs.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable that the ranks will be given (repeatable)",
    )
    needs.add_argument(
        "--port",
        action="append",
        type=int,
        default=[],
        metavar="PORT",
        help="TCP port that must be free on every node (repeatable)",
    )
    needs.add_argument(
        "--interface",
        default="",
        metavar="NAMES",
        help="network interfaces, written as in NCCL_SOCKET_IFNAME (default: that variable)",
    )
    needs.add_argument(
        "--checkpoint-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="folder, or s3:// or gs:// location, for checkpoints (repeatable)",
    )
    needs.add_argument(
        "--need-gib",
        type=amount,
        default=10.0,
        metavar="GIB",
        help="free space that each checkpoint folder must have, in GiB (default: %(default)g)",
    )
    needs.add_argument(
        "--rdzv-endpoint",
        default="",
        metavar="HOST:PORT",
        help="rendezvous endpoint of torchrun (default: PET_RDZV_ENDPOINT)",
    )
    needs.add_argument(
        "--rdzv-id",
        default="",
        metavar="ID",
        help="rendezvous id of the run (default: PET_RDZV_ID)",
    )
    backends = ["", "c10d", "etcd", "etcd-v2", "static"]
    needs.add_argument(
        "--rdzv-backend",
        default="",
        choices=backends,
        metavar="NAME",
        help="rendezvous backend: c10d, etcd, etcd-v2 or static (default: PET_RDZV_BACKEND)",
    )
    needs.add_argument(
        "--max-skew",
        type=amount,
        default=1.0,
        metavar="SECONDS",
        help="seconds that the clocks of two nodes may differ; a tenth of it causes a warning "
        "(default: %(default)g)",
    )
    needs.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="further Python package that must have the same version on all nodes (repeatable)",
    )
    needs.add_argument(
        "--config-file", default="", metavar="YAML", help="configuration file of the training"
    )
    needs.add_argument(
        "--config-like",
        default="",
        metavar="YAML",
        help="similar configuration file that is known to be good; keys that it lacks are "
        "questioned",
    )
    how = parser.add_argument_group("how to look")
    how.add_argument(
        "--collective",
        action="store_true",
        help="also compute a sum over all nodes, with NCCL or gloo; takes up to a minute",
    )
    how.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHECK",
        help="run only this check, from --list (repeatable)",
    )
    how.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="CHECK",
        help="leave out this check, from --list (repeatable)",
    )
    how.add_argument(
        "--checks",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="Python file with checks of your own (repeatable)",
    )
    how.add_argument("--list", action="store_true", help="list the checks, and run none")
    how.add_argument(
        "--deadline",
        type=positive,
        default=10.0,
        metavar="SECONDS",
        help="seconds that each check may take on a node (default: %(default)g; at least 1)",
    )
    how.add_argument(
        "--allow-warnings", action="store_true", help="exit with 0 if there are only warnings"
    )
    how.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Examine, judge, print."""
    from ray_sentinel.doctor import catalogue
    from ray_sentinel.doctor.judge import judge, worst

    plan = plan_from(args)
    checks = catalogue.all_checks(plan.sources)
    _known(checks, (*plan.only, *plan.skip))
    if args.list:
        print_checks(checks, as_json=args.json)
        return 0
    found, note = _examine(args, checks, plan)
    cluster, results = found.cluster, judge(checks, plan, found)
    verdict = worst(results)
    hosts = [node.host for node in cluster.joined] if cluster else list(found.looks)
    if args.json:
        print_json(
            {
                "outcome": verdict,
                "nodes": hosts,
                "cluster": cluster.address if cluster else None,
                "note": note,
                "results": results,
            }
        )
    else:
        print_results(results, hosts, cluster, note)
    bad = ("failure",) if args.allow_warnings else ("failure", "warning")
    return 1 if verdict in bad else 0


def plan_from(args: argparse.Namespace) -> RunPlan:
    """The arguments as a ``RunPlan``. Raises UsageError, InputError."""
    from ray_sentinel.doctor.catalogue import read_source

    environ = {}
    for item in args.env:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise UsageError(f"--env {item}: NAME=VALUE is expected")
        environ[name] = value
    for port in args.port:
        if not 0 < port < 65536:
            raise UsageError(f"--port {port}: ports go from 1 to 65535")
    if args.nodes is not None and args.nodes < 1:
        raise UsageError("--nodes must be at least 1")
    if args.gpus is not None and args.gpus < 0:
        raise UsageError("--gpus must be at least 0")
    return RunPlan(
        nodes=args.nodes,
        gpus=args.gpus,
        environ=environ,
        ports=tuple(args.port),
        interface=args.interface,
        checkpoints=tuple(args.checkpoint_dir),
        need_bytes=int(args.need_gib * GIB),
        rdzv_endpoint=args.rdzv_endpoint,
        rdzv_id=args.rdzv_id,
        rdzv_backend=args.rdzv_backend,
        skew_seconds=args.max_skew,
        packages=tuple(args.package),
        config_file=str(Path(args.config_file).absolute()) if args.config_file else "",
        config_like=str(Path(args.config_like).absolute()) if args.config_like else "",
        collective=args.collective,
        only=tuple(args.only),
        skip=tuple(args.skip),
        sources=tuple(read_source(path) for path in args.checks),
        deadline=max(1.0, args.deadline),
    )


def _known(checks: Sequence[Check[Any]], names: Iterable[str]) -> None:
    import difflib

    have = [check.name for check in checks]
    for name in names:
        if name not in have:
            near = difflib.get_close_matches(name, have, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(have)}"
            raise UsageError(f"there is no check {name}; {hint}")


def _examine(
    args: argparse.Namespace, checks: Sequence[Check[Any]], plan: RunPlan
) -> tuple[DoctorFindings, str]:
    """What was found, and why only on this machine; empty if that was asked for."""
    from ray_sentinel.doctor.machine import here

    note = ""
    place = here(plan)
    if not args.local:
        try:
            found = _through_ray(args.address, plan)
        except UnreachableError as error:
            if args.address or args.nodes:
                raise
            note = str(error)
        else:
            # What concerns no node is looked at here, where the files and variables are.
            own = examine([check for check in checks if not check.everywhere], plan, place)
            together = {**found.looks, place.host: (*found.looks.get(place.host, ()), *own)}
            return msgspec.structs.replace(found, looks=together), note
    return DoctorFindings(looks={place.host: examine(checks, plan, place)}), note


def _through_ray(address: str, plan: RunPlan) -> DoctorFindings:
    from ray_sentinel.actors.deployment import cluster as clusters
    from ray_sentinel.doctor import cluster

    with clusters.connect(address, ship=True) as ray:
        found = cluster.describe(ray, ray.get_runtime_context().gcs_address)
        return cluster.examine_cluster(ray, found, plan)


# The doctor's answer for people.

_MARKS = {
    "ok": "[green]ok[/]     ",
    "warning": "[yellow]warning[/]",
    "failure": "[red]failure[/]",
    "skipped": "[dim]skipped[/]",
}


def print_results(
    results: Sequence[CheckResult], hosts: Sequence[str], cluster: Cluster | None, note: str
) -> None:
    """One line each; the remedy below what is wrong."""
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    where = f"Ray cluster {cluster.address}" if cluster else "this machine"
    console.print(f"examined {_safe(where)}: {counted(len(hosts), 'node')}")
    if note:
        console.print(f"[dim]{_safe(note)}[/]")
    for result in sorted(results, key=lambda one: WORST_FIRST.index(one.outcome)):
        host = f"[bold]{_safe(result.host)}[/]: " if result.host else ""
        name = _safe(f"{result.check:17}")
        console.print(f"{_MARKS[result.outcome]} {name} {host}{_safe(result.seen)}")
        if result.remedy:
            console.print(f"{'':26}[dim]→[/] {_safe(result.remedy)}")
    counts = {kind: sum(r.outcome == kind for r in results) for kind in _MARKS}
    console.print(", ".join(f"{count} {kind}" for kind, count in counts.items() if count))


def print_checks(checks: Iterable[Check[Any]], *, as_json: bool) -> None:
    """What there is to check."""
    if as_json:
        print_json([{"name": check.name, "about": check.about} for check in checks])
        return
    console = Console(highlight=False, emoji=False)
    for check in checks:
        console.print(_safe(f"{check.name:17} {check.about}"))


def _safe(text: str) -> str:
    return escape(clean(text.replace("\n", "\\n")))
