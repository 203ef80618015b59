"""Write the dashboards for Grafana, or list them.

`export DIR` writes one JSON file for each dashboard into DIR, to be imported by hand or provisioned
from there. The data source is chosen in Grafana. `list` names them.

Exit codes: 0 success; 2 wrong usage, or a folder that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "what", choices=("export", "list"), help="write the dashboards to DIR, or list them"
    )
    parser.add_argument(
        "folder", nargs="?", metavar="DIR", help="with export: folder to write the files into"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Write, or list."""
    if args.what == "list":
        return _list(as_json=args.json)
    if not args.folder:
        raise UsageError("name the folder: `ray-sentinel dashboards export DIR`")
    from ray_sentinel.store.alerts_and_dashboards import export_dashboards

    written = [str(path) for path in export_dashboards(Path(args.folder).expanduser())]
    if args.json:
        print_json({"written": written})
    else:
        sys.stdout.write("".join(f"{clean(path)}\n" for path in written))
    return 0


def _list(*, as_json: bool) -> int:
    from ray_sentinel.store.alerts_and_dashboards import DASHBOARDS, dashboard, dashboard_file

    found = {name: dashboard(name) for name in DASHBOARDS}
    titles = {name: one["title"].removeprefix("ray_sentinel / ") for name, one in found.items()}
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "title": titles[name],
                    "about": one["description"],
                    "file": dashboard_file(name),
                    "panels": [p["title"] for p in one["panels"] if p["type"] != "row"],
                }
                for name, one in found.items()
            ]
        )
        return 0
    for name, one in found.items():
        sys.stdout.write(f"{name:<10} {titles[name]}: {one['description']}\n")
        for row, panels in _rows(one["panels"]):
            sys.stdout.write(f"{'':<10}   {row}: {panels} panels\n")
    return 0


def _rows(panels: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Title and number of panels of each row: in Grafana's files a row is followed by its own."""
    starts = [at for at, panel in enumerate(panels) if panel["type"] == "row"]
    ends = [*starts[1:], len(panels)]
    return [(panels[a]["title"], b - a - 1) for a, b in zip(starts, ends, strict=True)]
