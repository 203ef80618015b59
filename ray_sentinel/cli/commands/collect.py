"""Run a collector once, on this machine, and print what it yields.

The metrics go to stdout in the Prometheus text format, with events as comments; what the collector
could not read goes to stderr. With --proc, --sys or --dev it reads a captured tree instead of this
machine, and nothing outside the tree: a root that is not named is looked for beside one that is.

Exit codes: 0 success, also if a collector asks to be left out because its hardware is missing (the
reason is on stderr); 1 a collector failed or missed its deadline; 2 wrong usage, no such collector,
or wrong settings.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.cli.options import add_config
from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.config import ENV_PREFIX, load
from ray_sentinel.errors import ConfigError, UsageError
from ray_sentinel.model.ray_cluster import RayCluster

if TYPE_CHECKING:  # 40 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.collect.once import CollectorResult
    from ray_sentinel.collect.protocol import CollectorSource, Roots
    from ray_sentinel.collect.runner_context import CollectorConfig

_ROOTS = ("proc", "sys", "dev")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's line."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="collector to run, from `plugins list`"
    )
    parser.add_argument("--all", action="store_true", help="run every collector, side by side")
    for root in _ROOTS:
        parser.add_argument(
            f"--{root}", metavar="DIR", type=Path, help=f"read this folder instead of /{root}"
        )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="setting of the collector, as in [collectors.NAME]; the value is JSON or text "
        "(repeatable)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="SECONDS",
        help="seconds that a run may take (default: as configured, or else the collector's own)",
    )
    parser.add_argument(
        "--host",
        metavar="NAME",
        default="",
        help="host label of the metrics (default: name of the host that is read)",
    )
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Collect and print."""
    from ray_sentinel.collect.once import collect_once, host_of
    from ray_sentinel.collect.protocol import Roots

    if bool(args.name) == args.all:
        raise UsageError("name one collector, or give --all")
    roots = _roots(args, Roots)
    given = settings(args.set)
    wanted = _wanted(args, given)
    host = clean(args.host) or host_of(roots)
    results = collect_once(wanted, host=host, roots=roots, cluster=_cluster)
    results = [_placed(result, given, args.config) for result in results]
    if args.name and results[0].misconfigured:
        raise ConfigError(results[0].problems[0])
    if args.json:
        shown = [_plain(result, host) for result in results]
        print_json(shown if args.all else shown[0])
    else:
        _print(results, host)
    if any(result.misconfigured for result in results):
        return 2
    return 0 if all(result.success for result in results) else 1


def _cluster() -> RayCluster | None:
    """What the control store of this machine's Ray cluster says now; None if there is none."""
    from ray_sentinel.actors.coordinator.ray.cluster_state import ClusterReader
    from ray_sentinel.actors.raylets import address_here

    address = address_here()
    return ClusterReader(address).read() if address else None


def _roots(args: argparse.Namespace, kind: type[Roots]) -> Roots:
    """The roots. A captured tree may lack some, but not all that were named; one that was not named
    is looked for beside the others, so that this machine's files never mix with another's."""
    named = {root: getattr(args, root) for root in _ROOTS if getattr(args, root) is not None}
    missing = {root: folder for root, folder in named.items() if not folder.is_dir()}
    wrong = {root: folder for root, folder in missing.items() if os.path.lexists(folder)}
    if wrong or (missing and len(missing) == len(named)):
        root, folder = next(iter((wrong or missing).items()))
        raise UsageError(f"--{root}: {folder} is not a folder")
    for root, folder in missing.items():
        sys.stderr.write(f"--{root}: {clean(str(folder))} is not there: read as an empty folder\n")
    top = next(iter(named.values())).absolute().parent if named else Path("/")
    return kind(**{root: named.get(root, top / root) for root in _ROOTS})


def _placed(result: CollectorResult, given: dict[str, Any], file: str | None) -> CollectorResult:
    """The result, which says where a wrong setting stands."""
    if not result.misconfigured:
        return result
    problem, *others = result.problems
    return msgspec.structs.replace(result, problems=(placed(problem, given, file), *others))


def _wanted(
    args: argparse.Namespace, given: dict[str, Any]
) -> list[tuple[CollectorSource, CollectorConfig]]:
    from ray_sentinel.collect.plugins import known_collectors, plugins_of
    from ray_sentinel.collect.runner_context import collector_config

    if args.deadline is not None and not 0 < args.deadline <= 1e9:
        raise UsageError("--deadline must be more than 0 seconds, and a number")
    config = load(args.config)
    known = known_collectors(config)
    if args.name and args.name not in known:
        near = difflib.get_close_matches(args.name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
        refused = "; ".join(p.problem for p in plugins_of(config) if p.untrusted)
        raise UsageError(f"there is no collector {args.name}; {hint}{refused and f'; {refused}'}")
    if given and args.all:
        raise UsageError("--set is for one collector; name it")
    wanted = []
    for name in sorted(known) if args.all else [args.name]:
        try:
            settings = collector_config(name, {name: {**config.collectors.get(name, {}), **given}})
        except ConfigError as error:
            raise ConfigError(placed(str(error), given, args.config)) from None
        if args.deadline is not None:
            settings = msgspec.structs.replace(settings, deadline=args.deadline)
        if settings.enabled or not args.all:
            wanted.append((known[name], settings))
    return wanted


def _print(results: list[CollectorResult], host: str) -> None:
    from ray_sentinel.model.exposition import Renderer

    families = [family for result in results for family in result.families]
    sys.stdout.write(Renderer(host).render(families).decode())
    sys.stdout.write(Renderer(host, history=True).render(families).decode())
    for result in results:
        for event in result.events:
            text = clean(event.message).replace("\n", "\\n")
            sys.stdout.write(f"# EVENT {event.time:.3f} {event.severity} {event.kind} {text}\n")
        if result.skipped:
            sys.stderr.write(f"{result.collector}: left out: {clean(result.skipped)}\n")
        for problem in result.problems:
            sys.stderr.write(f"{result.collector}: {clean(problem)}\n")


def _plain(result: CollectorResult, host: str) -> dict[str, Any]:
    return {
        "collector": result.collector,
        "host": host,
        "success": result.success,
        "skipped": result.skipped,
        "seconds": result.seconds,
        "families": [
            {
                "name": family.metric.name,
                "type": family.metric.kind,
                "help": family.metric.help,
                "samples": [
                    {
                        "labels": {"host": host, **dict(sample.labels)},
                        "value": _number(sample.value),
                        "timestamp": sample.timestamp,
                    }
                    for sample in family.samples
                ],
            }
            for family in result.families
        ],
        "events": result.events,
        "problems": result.problems,
    }


def _number(value: float) -> float | str:
    """JSON knows no NaN and no infinity: they are written as the exposition writes them."""
    from ray_sentinel.model.exposition import number

    return value if math.isfinite(value) else number(value)


# A collector's settings as ``collect`` is given them: ``--set``, and where each one stands.

_PLACES = frozenset({"file", "files", "folder", "folders", "path", "paths"})
"""Keys of settings whose values are paths of files or folders."""
_COMPLAINT = re.compile(r"\[collectors\.(?P<name>[^\]]*)\]: (?:unknown key )?(?P<key>[\w-]*)")


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` each, the value JSON or text. Raises UsageError for anything else."""
    return dict(_setting(text) for text in texts)


def placed(complaint: str, given: Mapping[str, Any], file: str | None) -> str:
    """What is wrong with a collector's setting, and first of all where that is set: in ``given``
    (``--set``), in a variable, or in the configuration file."""
    found = _COMPLAINT.match(complaint)
    if found is None:
        return complaint
    name, key = found["name"], found["key"]
    if key in given:
        return f"--set {key}: {complaint}"
    variable = f"{ENV_PREFIX}COLLECTORS__{name}__{key}".upper()
    if variable in map(str.upper, os.environ):
        return f"{variable}: {complaint}"
    path = file or os.environ.get(ENV_PREFIX + "CONFIG")
    if path and key in load(path, environ={}).collectors.get(name, {}):
        return f"{path}: {complaint}"
    return complaint


def _setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"--set {text}: write KEY=VALUE")
    key = key.strip()
    try:
        told = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        told = value
    return key, _from_here(told) if key in _PLACES else told


def _from_here(told: Any) -> Any:
    """Relative paths made absolute: a collector's process runs in another folder."""
    if isinstance(told, list):
        return [_from_here(one) for one in told]
    if not isinstance(told, str) or not told or told.startswith("~"):
        return told
    return str(Path.cwd() / told)
