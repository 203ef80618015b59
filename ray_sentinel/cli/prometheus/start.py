"""Run a job's Prometheus (`prometheus start DIR`) in the foreground, beside any cluster."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ray_sentinel.cli.options import add_address, add_program, port
from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.cli.prometheus.closing import until_closed
from ray_sentinel.cli.prometheus.config import (
    RAY_TEMP,
    add_scrape_arguments,
    from_cluster,
    scrape_of,
)
from ray_sentinel.errors import MissingPartError, UnreachableError

if TYPE_CHECKING:  # 40 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.store.prometheus.job import JobPrometheus

HELP = "run a Prometheus for a job on this machine, until Ctrl-C"
STEP_SECONDS = 2.0
"""Seconds between two looks for new targets."""
START_SECONDS = 60.0
"""Seconds that Prometheus has to answer for the first time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder", metavar="DIR", help="job's folder; data and log go to its prometheus/"
    )
    parser.add_argument(
        "--sd",
        default="",
        metavar="URL",
        help="an agent's target list, http://HOST:9400/sd (default: from the watched cluster)",
    )
    add_address(parser)
    add_program(parser, "--binary")
    parser.add_argument(
        "--download", action="store_true", help="download the program first, if it is missing"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=9190,
        metavar="PORT",
        help="first port to try (default: %(default)d)",
    )
    parser.add_argument(
        "--retention",
        default="30d",
        metavar="DURATION",
        help="how long data are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--ray-temp-dir",
        default=RAY_TEMP,
        metavar="DIR",
        help="Ray's temp dir, for Ray's own metrics (default: %(default)s)",
    )
    add_scrape_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Start it, watch it, and stop it at the end."""
    from ray_sentinel.store.prometheus.job import JobPrometheus
    from ray_sentinel.store.prometheus.targets import Targets, ray_targets

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    scrape = scrape_of(args)
    url, hosts = (args.sd, {}) if args.sd else from_cluster(args.address)
    server = JobPrometheus(
        Path(args.folder).expanduser().absolute() / "prometheus",
        binary=args.binary or _downloaded(wanted=args.download),
        port=args.port,
        retention=args.retention,
        scrape=scrape,
    )
    targets = Targets(url, scrape)
    ray = Path(args.ray_temp_dir)
    with until_closed():
        try:
            _until_it_answers(server, targets.poll(), ray_targets(ray, hosts))
            _print_address(server, as_json=args.json)
            while True:
                time.sleep(STEP_SECONDS)
                server.step(targets.poll(), ray_targets(ray, hosts))
        finally:
            server.close()  # it writes what it has; a second Ctrl-C does not cut that short
    return 0


def _downloaded(*, wanted: bool) -> str:
    """The option that names the program; empty if it is found without."""
    from ray_sentinel.store.prometheus.binary import find_prometheus
    from ray_sentinel.store.prometheus.download import download

    try:
        return find_prometheus()
    except MissingPartError:
        if not wanted:
            raise
    return str(download()[0])


def _until_it_answers(
    server: JobPrometheus, agents: tuple[str, ...], ray: Mapping[str, str]
) -> None:
    """Raises UnreachableError, with what it says, where it does not in time."""
    end = time.monotonic() + START_SECONDS
    while True:
        server.step(agents, ray)
        if server.ready():
            return
        if time.monotonic() > end:
            raise UnreachableError("; ".join(server.notes) or "Prometheus does not answer")
        time.sleep(0.2)


def _print_address(server: JobPrometheus, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": server.url, "notes": server.notes})
    else:
        lines = [f"Prometheus is at {server.url}", *server.notes, "Ctrl-C ends it"]
        sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stdout.flush()
