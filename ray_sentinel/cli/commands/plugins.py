"""List and check collectors: those of installed packages, and the user's own files.

`plugins list` runs each collector once, on this machine, and shows how it fares. `plugins check
FILE` does so for files before they are put into the plugin folder, and shows everything that is
wrong with them. `plugins push FILE` puts a file on every watched node through the agents, past a
shared file system that lags; it runs there within seconds. `plugins dir` prints the plugin folder.

Exit codes: 0 success; 1 a collector failed, or a file cannot be used; 2 wrong usage, or no such
file; 3 no coordinator can be reached.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_sentinel.cli.options import add_address, add_config, amount
from ray_sentinel.cli.output import clean, console, print_json, text_printer
from ray_sentinel.config import Config, load
from ray_sentinel.errors import UsageError

if TYPE_CHECKING:  # 40 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.collect.once import CollectorResult
    from ray_sentinel.collect.protocol import CollectorSource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list",
        help="list the known collectors, and run each once",
        description="List the known collectors, and run each once on this machine.",
    )
    listing.add_argument(
        "--no-run", action="store_true", help="list the collectors without running them"
    )
    check = actions.add_parser(
        "check",
        help="check plugin files before they are used",
        description="Run the collectors of plugin files once, and show everything that is wrong.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="plugin file to check")
    folder = actions.add_parser(
        "dir",
        help="print the plugin folder",
        description="Print the folder that plugins are loaded from.",
    )
    pushing = actions.add_parser(
        "push",
        help="put a plugin file on every watched node, at once",
        description="Put a plugin file on every watched node, and wait for its first run there.",
    )
    pushing.add_argument("file", type=Path, metavar="FILE", help="plugin file to push")
    add_address(pushing)
    pushing.add_argument(
        "--timeout",
        type=amount,
        default=15.0,
        metavar="SECONDS",
        help="seconds to wait for the first run (default: %(default)g)",
    )
    pushing.add_argument("--json", action="store_true", help="print JSON instead of text")
    for action in (listing, check, folder):
        add_config(action)
        action.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Carry out the action."""
    from ray_sentinel.collect.plugins import plugin_folder

    if args.action == "push":
        return _push(args)
    config = load(args.config)
    if args.action == "dir":
        folder = str(plugin_folder(config))
        print_json({"dir": folder}) if args.json else text_printer()(folder)
        return 0
    rows = _check(args.files, config) if args.action == "check" else _list(config, args.no_run)
    if args.json:
        print_json(rows)
    else:
        _table(rows)
    return 1 if any(row["state"] == "failed" for row in rows) else 0


def _push(args: argparse.Namespace) -> int:
    from ray_sentinel.collect.discovery import read_plugin
    from ray_sentinel.errors import InputError

    if not args.file.is_file():
        raise UsageError(f"{args.file}: there is no such file")
    plugin = read_plugin(args.file.absolute(), to_run_here=False)
    if plugin.problem:
        raise InputError(plugin.problem)
    from ray_sentinel.cli.pushing import push

    names = tuple(source.name for source in plugin.sources)
    rows = push(args.address, args.file.name, plugin.data, names, args.timeout)
    if args.json:
        print_json(rows)
    else:
        say = text_printer()
        for row in rows:
            say(f"{row['host']}: {_describe(row)}")
    failed = [s for row in rows for s in row.get("collectors", ()) if s.success is False]
    return 1 if failed or not rows or not all(row["installed"] for row in rows) else 0


def _describe(row: dict[str, Any]) -> str:
    if not row["installed"]:
        return f"not installed: {row['message']}"
    fares = (
        f"{status.name} {status.state}" + (f" ({status.message})" if status.message else "")
        for status in row["collectors"]
    )
    return "installed; " + (", ".join(fares) or "not run yet")


def _list(config: Config, no_run: bool) -> list[dict[str, Any]]:
    from ray_sentinel.collect.plugins import known_collectors, plugins_of

    known = known_collectors(config)
    sources = [known[name] for name in sorted(known)]
    rows = [_row(source) for source in sources] if no_run else _run_all(sources, config)
    return rows + [
        _broken(plugin.path, plugin.problem) for plugin in plugins_of(config) if plugin.problem
    ]


def _check(files: list[Path], config: Config) -> list[dict[str, Any]]:
    from ray_sentinel.collect.discovery import read_plugin

    rows = []
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: there is no such file")
        plugin = read_plugin(file.absolute())
        if plugin.problem:
            rows.append(_broken(file, plugin.problem))
        else:
            rows += _run_all(list(plugin.sources), config)
    return rows


def _run_all(sources: list[CollectorSource], config: Config) -> list[dict[str, Any]]:
    from ray_sentinel.collect.once import collect_once, host_of
    from ray_sentinel.collect.protocol import Roots
    from ray_sentinel.collect.runner_context import collector_config

    wanted = [(source, collector_config(source.name, config.collectors)) for source in sources]
    with tempfile.TemporaryDirectory(prefix="ray-sentinel-") as folder:
        results = collect_once(wanted, host=host_of(Roots()), roots=Roots(), state_dir=Path(folder))
    return [_row(source, result) for source, result in zip(sources, results, strict=True)]


def _row(source: CollectorSource, result: CollectorResult | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": source.name,
        "kind": source.kind,
        "origin": source.origin,
        "state": "known",
        "message": "",
    }
    if result is not None:
        row["state"] = "ok" if result.success else "failed"
        row["message"] = "; ".join(result.problems)
        if result.skipped:
            row["state"], row["message"] = "skipped", result.skipped
        row["seconds"] = result.seconds
        row["series"] = sum(len(family.samples) for family in result.families)
        row["metrics"] = [family.metric.name for family in result.families]
        row["problems"] = result.problems
    return row


def _broken(file: Path, problem: str) -> dict[str, Any]:
    return {
        "name": file.name,
        "kind": "file",
        "origin": str(file),
        "state": "failed",
        "message": problem,
    }


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("NAME", "KIND", "STATE", "SERIES", "FROM", "MESSAGE"):
        table.add_column(heading, overflow="fold")
    colours = {"ok": "green", "failed": "red", "skipped": "yellow"}
    for row in rows:
        cells = [row["name"], row["kind"], row["state"], str(row.get("series", ""))]
        texts = [Text(clean(cell)) for cell in (*cells, row["origin"], row["message"])]
        texts[2].stylize(colours.get(row["state"], ""))
        table.add_row(*texts)
    console().print(table)
