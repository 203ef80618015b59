"""Watch the Ray cluster: a coordinator on the head, an agent on every node.

Safe to repeat. If the cluster is watched already, its configuration stays.

Exit codes: 0 every node is watched; 1 some are not, and it says why; 2 wrong usage; 3 no cluster
can be reached.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ray_sentinel.cli.options import add_common, add_config, amount
from ray_sentinel.cli.output import print_json, text_printer
from ray_sentinel.config import absolute, load, to_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    add_config(parser)
    parser.add_argument(
        "--job", default="", metavar="NAME", help="name of the job, which names the log folder too"
    )
    parser.add_argument(
        "--log-dir",
        default="",
        metavar="DIR",
        help="folder for all files that ray_sentinel writes (default: as configured, or else "
        "~/ray_sentinel/JOB)",
    )
    parser.add_argument(
        "--prometheus",
        nargs="?",
        const="",
        metavar="PATH",
        help="run a Prometheus for the job on the head; PATH is its program (default: the one on "
        "PATH there)",
    )
    parser.add_argument(
        "--timeout",
        type=amount,
        default=30.0,
        metavar="SECONDS",
        help="seconds to wait until all nodes are watched (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Deploy, and wait until every node is watched."""
    config = absolute(load(args.config, overrides=_overrides(args)), Path.cwd())
    from ray_sentinel.actors.deployment import cluster, deploy
    from ray_sentinel.actors.deployment.helper import wait_until_watched

    with cluster.connect(args.address, ship=True) as ray:
        deployed = deploy.ensure(ray, config)
        status = wait_until_watched(ray, deployed.coordinator, args.timeout)
        link = "" if args.json else deploy.page_link(ray, deployed.coordinator)
    notes, running = list(status.notes), deployed.description.config
    if not deployed.created and running and to_json(config) != running:
        notes.append(
            "the cluster was watched already, with another configuration, which stays: "
            "`ray-sentinel down` first to change it"
        )
    if args.json:
        print_json(
            {
                "created": deployed.created,
                "nodes": status.nodes,
                "unwatched": status.unwatched,
                "log_dir": status.log_dir,
                "prometheus": status.prometheus,
                "notes": notes,
            }
        )
        return 1 if status.unwatched else 0
    say = text_printer()
    word = "watching" if deployed.created else "watching already"
    say(f"{word} {len(status.nodes)} nodes; files go to {status.log_dir}")
    for node in status.nodes:
        say(f"  {node.host}  {node.metrics_url}")
    if link:
        say(f"page: {link}")
    if status.prometheus:
        say(f"Prometheus on the head: {status.prometheus}")
    for left in status.unwatched:
        say(f"  {left.host} is not watched: {left.reason}", "yellow")
    for note in notes:
        say(f"note: {note}", "dim")
    return 1 if status.unwatched else 0


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    named = {"job": args.job, "log_dir": args.log_dir}
    given: dict[str, Any] = {key: value for key, value in named.items() if value}
    if args.prometheus is not None:
        binary = {"binary": args.prometheus} if args.prometheus else {}
        given["prometheus"] = {"enabled": True, **binary}
    return given
