"""Stop watching: remove the coordinator, the agents, what they started, and the placement groups.

Returns when nothing is left.

Exit codes: 0 nothing is left, also if there was nothing; 1 something could not be removed; 2 wrong
usage; 3 the cluster cannot be reached.
"""

from __future__ import annotations

import argparse

from ray_sentinel.cli.options import add_common
from ray_sentinel.cli.output import print_json, text_printer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Remove everything, and look whether it is gone."""
    from ray_sentinel.actors.deployment import cluster, deploy

    told: list[str] = []
    with cluster.connect(args.address) as ray:
        left = deploy.down(ray, told.append)
    if args.json:
        print_json({"left": left, "done": told})
        return 1 if left else 0
    say = text_printer()
    for line in (*told, *(f"still there: {name}" for name in left)):
        say(line)
    if not left:
        say("nothing of ray_sentinel is left in this cluster")
    return 1 if left else 0
