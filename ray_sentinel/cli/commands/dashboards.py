"""Dashboards for Grafana: ``ray-sentinel dashboards export DIR``.

Writes one JSON file for each dashboard into DIR, to be imported by hand or provisioned from there.
The data source is chosen in Grafana. ``dashboards list`` says what there is.

Exit codes: 0 well; 2 wrong usage, or a folder that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.errors import UsageError

HELP = "write dashboards for Grafana"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("what", choices=("export", "list"))
    parser.add_argument("folder", nargs="?", metavar="DIR", help="export: where to")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(args: argparse.Namespace) -> int:
    """Write, or list."""
    if args.what == "list":
        return _list(as_json=args.json)
    if not args.folder:
        raise UsageError("name the folder: `ray-sentinel dashboards export DIR`")
    from ray_sentinel.store.dashboards.catalog import export

    written = [str(path) for path in export(Path(args.folder).expanduser())]
    if args.json:
        print_json({"written": written})
    else:
        sys.stdout.write("".join(f"{clean(path)}\n" for path in written))
    return 0


def _list(*, as_json: bool) -> int:
    from ray_sentinel.store.dashboards.catalog import DASHBOARDS, file_name

    if as_json:
        print_json(
            [
                {
                    "name": dashboard.name,
                    "title": dashboard.title,
                    "about": dashboard.about,
                    "file": file_name(dashboard),
                    "panels": [panel.title for panel in dashboard.panels],
                }
                for dashboard in DASHBOARDS
            ]
        )
        return 0
    for dashboard in DASHBOARDS:
        sys.stdout.write(f"{dashboard.name:<10} {dashboard.title}: {dashboard.about}\n")
        for row in dashboard.rows:
            sys.stdout.write(f"{'':<10}   {row.title}: {len(row.panels)} panels\n")
    return 0
