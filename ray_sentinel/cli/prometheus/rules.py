"""`prometheus rules`: the alert rules for a Prometheus of the user's own."""

from __future__ import annotations

import argparse
import sys

from ray_sentinel.cli.output import print_json

HELP = "print the alert rules"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """It has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print them: as the file that Prometheus reads, or as JSON."""
    from ray_sentinel.store.alerts.catalog import alerts, rules_file

    if args.json:
        print_json({"rules": alerts(), "file": rules_file()})
    else:
        sys.stdout.write(rules_file())
    return 0
