"""Print the alert rules (`prometheus rules`) for a Prometheus of your own."""

from __future__ import annotations

import argparse
import sys

from ray_sentinel.cli.output import print_json

HELP = "print the alert rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="print a PrometheusRule of the Prometheus operator instead",
    )
    parser.add_argument(
        "--namespace",
        default="",
        metavar="NAME",
        help="with --kubernetes: namespace of the PrometheusRule (default: none is written)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the rules in Prometheus's file format, or as JSON."""
    from ray_sentinel.store.alerts_and_dashboards import alerts, prometheus_rule, rules_file

    text = prometheus_rule(args.namespace) if args.kubernetes else rules_file()
    if args.json:
        print_json({"rules": alerts(), "file": text})
    else:
        sys.stdout.write(text)
    return 0
