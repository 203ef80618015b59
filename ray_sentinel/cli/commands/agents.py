"""Restart the agent on a node.

NODE is a host name, an address, or the beginning of a node's id (at least 4 characters).

Exit codes: 0 the agent reports again; 1 it does not report in time; 2 wrong usage, or an unknown
node; 3 no coordinator can be reached.
"""

from __future__ import annotations

import argparse
import time

from ray_sentinel.actors.messages import AgentInfo
from ray_sentinel.cli.options import add_common, amount
from ray_sentinel.cli.output import print_json, text_printer
from ray_sentinel.cli.reach import CoordinatorConnection, coordinator, nodes_named
from ray_sentinel.errors import UsageError
from ray_sentinel.model.status import NodeStatus, Status, Unwatched


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument("what", choices=("restart",), help="end the agent and start a new one")
    parser.add_argument("node", metavar="NODE", help="node whose agent is restarted")
    parser.add_argument(
        "--timeout",
        type=amount,
        default=30.0,
        metavar="SECONDS",
        help="seconds to wait until the agent reports again (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Restart, and wait until the agent reports again."""
    with coordinator(args.address) as found:
        node = _choose(found.ask("status", Status), args.node)
        before = _incarnation(found, node.id)
        begun = time.monotonic()
        restarted = bool(found.call("restart_agent", node.id))
        well = restarted and _wait(found, node.id, before, args.timeout)
        seconds = round(time.monotonic() - begun, 3)
    say = text_printer()
    if args.json:
        print_json({"node": node.id, "host": node.host, "restarted": well, "seconds": seconds})
    elif well:
        say(f"the agent on {node.host} reports again after {seconds:.1f} s")
    else:
        why = "it does not report" if restarted else "it has no agent now"
        say(f"{node.host}: {why}")
    return 0 if well else 1


def _choose(status: Status, name: str) -> NodeStatus | Unwatched:
    nodes: list[NodeStatus | Unwatched] = [*status.nodes, *status.unwatched]
    unique = {node.id: node for node in nodes_named(nodes, name)}
    if len(unique) == 1:
        return next(iter(unique.values()))
    known = ", ".join(sorted({node.host for node in nodes})) or "none"
    raise UsageError(f"{name!r} is {'ambiguous' if unique else 'no node'}; known: {known}")


def _incarnation(found: CoordinatorConnection, node_id: str) -> str:
    agents = found.ask("agents", tuple[AgentInfo, ...])
    return next((agent.incarnation for agent in agents if agent.node_id == node_id), "")


def _wait(found: CoordinatorConnection, node_id: str, before: str, seconds: float) -> bool:
    """Wait until another process than before reports from the node."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        time.sleep(0.05)
        if _incarnation(found, node_id) not in ("", before):
            return True
    return False
