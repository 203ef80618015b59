"""Look at one node now: D-state processes, kernel log, versions, GPUs and their users, transport.

NODE is a host name, an address, or the beginning of a node's id (at least 4 characters); the node's
agent looks. Without NODE this node is looked at, and no cluster is needed.

Exit codes: 0 nothing was found; 1 there are blocked processes, or within the last hour the kernel
reported a lost GPU or memory that ran out; 2 wrong usage, or an unknown node; 3 no cluster or no
agent can be reached.
"""

from __future__ import annotations

import argparse

from ray_sentinel.cli.options import add_common
from ray_sentinel.cli.output import print_json, text_printer
from ray_sentinel.cli.reach import coordinator, nodes_named
from ray_sentinel.errors import UsageError
from ray_sentinel.evidence.node.judge import grave_lines
from ray_sentinel.model.health import NodeView
from ray_sentinel.model.status import NodeStatus, Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument(
        "node", nargs="?", metavar="NODE", default="", help="node to look at (default: this node)"
    )


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    view = _remote(args.address, args.node) if args.node else _here()
    if args.json:
        print_json(view)
    else:
        _print(view)
    return 1 if view.blocked or grave_lines(view, view.time) else 0


def _here() -> NodeView:
    from ray_sentinel.monitor.local import local_view

    return local_view()


def _remote(address: str, name: str) -> NodeView:
    from ray_sentinel.actors.coordinator.survey import inspect

    with coordinator(address) as found:
        node = choose(found.ask("status", Status), name)
        return inspect(found.ray, node.id)


def choose(status: Status, name: str) -> NodeStatus:
    """The watched node that ``name`` means. Raises UsageError with the nodes that there are."""
    chosen = nodes_named(status.nodes, name)
    if len(chosen) == 1:
        return chosen[0]
    known = ", ".join(sorted(node.host for node in status.nodes)) or "none"
    why = next((node.reason for node in status.unwatched if name in (node.host, node.id)), "")
    what = f"not watched: {why}" if why else "ambiguous" if chosen else "no watched node"
    raise UsageError(f"{name!r} is {what}; watched are: {known}")


def _print(view: NodeView) -> None:
    from ray_sentinel.report.health_text import node_lines

    say = text_printer()
    for number, line in enumerate(node_lines(view)):
        say(line, "" if number else "bold")
