"""List incidents, show one in full, or judge the recorded events again.

    ray-sentinel incidents
    ray-sentinel incidents 0003            (the same as: show 0003)
    ray-sentinel incidents replay 0003
    ray-sentinel incidents replay DIR --why

`replay` judges the recorded events again with the installed version, and shows what was reported
then beside what would be reported now. DIR is a log_dir, a folder of events, or an incident's
folder in a log_dir; an ID is looked for in --from, or else in the configured log_dir. It needs no
Ray, so a copy of the log_dir can be judged on any machine. The rules' settings are those that are
configured on this machine.

Exit codes: 0 nothing is wrong now; 1 an incident is open; 2 wrong usage, or an unknown ID; 3 no
coordinator can be reached. For replay: 0 all is the same; 1 something differs, or could not be
judged in full; 2 there is no event log that can be read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from ray_sentinel.cli.open_incidents import is_open
from ray_sentinel.cli.options import add_common, add_url
from ray_sentinel.cli.output import clean, console, print_json
from ray_sentinel.cli.reach import asked
from ray_sentinel.errors import UsageError
from ray_sentinel.model.incident import Incident
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.report.words import brief_progress, second


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """The arguments after the command, with ``show`` in front if they begin with an ID."""
    first = arguments[0] if arguments else ""
    return ["show", *arguments] if first.isdecimal() else list(arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    add_url(parser)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("list", "show", "replay"),
        default="list",
        help="what to do (default: %(default)s)",
    )
    parser.add_argument(
        "id", nargs="?", default="", metavar="ID", help="incident; with replay also a folder"
    )
    parser.add_argument(
        "--job", default="", metavar="NAME", help="only incidents of this job (default: all jobs)"
    )
    parser.add_argument(
        "--from",
        dest="source",
        default="",
        metavar="DIR",
        help="with replay: log_dir, or folder of events, to look for ID in (default: the "
        "configured log_dir)",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="with replay: also show what was weighed, rank by rank",
    )


def run(args: argparse.Namespace) -> int:
    """List incidents, show one, or replay the recorded events."""
    if args.what == "show" and not args.id:
        raise UsageError(
            "which one? `ray-sentinel incidents` lists the IDs: ray-sentinel incidents show ID"
        )
    if args.source and args.what != "replay":
        raise UsageError("--from is for replay: ray-sentinel incidents replay ID --from DIR")
    if args.why and args.what != "replay":
        raise UsageError("--why is for replay: ray-sentinel incidents replay ID --why")
    if args.what == "replay":
        from ray_sentinel.cli.replay_view import replay

        return replay(args.id, args.source, job=args.job, as_json=args.json, why=args.why)
    with asked(args) as found:
        incidents = found.ask("incidents", tuple[Incident, ...])
    if args.what == "show":
        return _show(incidents, args)
    chosen = [i for i in incidents if not args.job or i.job == args.job]
    if args.json:
        print_json([incident_dict(incident) for incident in chosen])
    else:
        _table(chosen)
    return 1 if any(map(is_open, chosen)) else 0


def _show(incidents: tuple[Incident, ...], args: argparse.Namespace) -> int:
    incident = next((i for i in incidents if i.id == args.id), None)
    if incident is None:
        known = ", ".join(i.id for i in incidents[-10:]) or "there are none"
        raise UsageError(f"there is no incident {args.id}; known: {known}")
    if args.json:
        print_json(incident_dict(incident))
    else:
        screen = console()
        screen.print(Markdown(clean(markdown(incident, folds=False))))
        if incident.bundle:
            screen.print(f"files: {clean(incident.bundle)}", soft_wrap=True)
    return 1 if is_open(incident) else 0


def _table(incidents: list[Incident]) -> None:
    screen = console()
    if not incidents:
        screen.print("no incidents")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    # What people type again, or compare with a log, stays in one piece on a narrow terminal.
    for name, whole in (("id", True), ("when (UTC)", True), ("job", False), ("state", True)):
        table.add_column(name, no_wrap=whole)
    table.add_column("what")
    for incident in incidents:
        opened = is_open(incident)
        table.add_row(
            clean(incident.id),
            second(incident.suspected_at),
            clean(incident.job),
            Text(brief_progress(incident.state), style="bold red" if opened else "dim"),
            f"{incident.kind}: {clean(incident.summary)}",
        )
    screen.print(table)
    shown = next((one for one in reversed(incidents) if is_open(one)), incidents[-1])
    screen.print(f"in full: ray-sentinel incidents show {clean(shown.id)}", style="dim")
