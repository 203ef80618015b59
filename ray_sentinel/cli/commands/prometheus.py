"""Time series: `ray-sentinel prometheus config` and `ray-sentinel prometheus view DIR`.

`config` prints the scrape configuration for a Prometheus of your own. Where a cluster is watched,
its addresses are filled in; --kubernetes prints a PodMonitor of the Prometheus operator instead.
`view` opens the data of a job, finished or running, in a Prometheus of its own on a free port of
this machine, without changing them, until Ctrl-C.

Exit codes: 0 well; 2 wrong usage, or a folder without data; 3 the program is missing or no cluster
could be reached where --address asks for one.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from ray_sentinel.store.scrape_config import Discovery

HELP = "print a scrape configuration, or view a job's data"

RAY_TEMP = "/tmp/ray"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("what", choices=("config", "view"))
    parser.add_argument("folder", nargs="?", metavar="DIR", help="view: the job's folder")
    parser.add_argument("--kubernetes", action="store_true", help="config: print a PodMonitor")
    parser.add_argument("--namespace", default="", help="config: of the PodMonitor")
    parser.add_argument("--sd", default="", metavar="URL", help="config: an agent's /sd")
    parser.add_argument(
        "--ray-temp-dir", default=RAY_TEMP, metavar="DIR", help="config: Ray's, on the head"
    )
    parser.add_argument("--address", default="", metavar="HOST:PORT", help="of the Ray cluster")
    parser.add_argument("--binary", default="", metavar="PATH", help="view: the program")
    parser.add_argument("--port", type=int, default=0, help="view: the first to try")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(args: argparse.Namespace) -> int:
    """Print, or open."""
    if args.what == "view":
        return _view(args)
    if args.folder:
        raise UsageError("`prometheus config` takes no folder")
    text = _config(args)
    if args.json:
        print_json({"config": text})
    else:
        sys.stdout.write(text)
    return 0


def _config(args: argparse.Namespace) -> str:
    from ray_sentinel.store.scrape_config import pod_monitor, scrape_config

    if args.kubernetes:
        return pod_monitor(args.namespace)
    return scrape_config(_discovery(args))


def _discovery(args: argparse.Namespace) -> Discovery:
    from ray_sentinel.store.scrape_config import RAY_FILE, Discovery

    url, hosts = (args.sd, {}) if args.sd else _from_cluster(args.address)
    ray = f"{args.ray_temp_dir.rstrip('/')}/{RAY_FILE}"
    return Discovery(kind="http", agents=url, ray=ray, hosts=hosts)


def _from_cluster(address: str) -> tuple[str, dict[str, str]]:
    """An agent's ``/sd`` and the nodes' names, from the coordinator."""
    from ray_sentinel.cli.reach import coordinator
    from ray_sentinel.model.status import Status

    try:
        with coordinator(address) as found:
            status = found.ask("status", Status)
    except UnreachableError as error:
        raise UnreachableError(
            f"{error}; without a watched cluster, name an agent: --sd http://HOST:9400/sd"
        ) from None
    urls = [node.metrics_url for node in status.nodes if node.metrics_url]
    if not urls:
        raise UnreachableError("no agent serves metrics yet; try again in a few seconds")
    return urls[0].removesuffix("/metrics") + "/sd", {n.address: n.host for n in status.nodes}


def _view(args: argparse.Namespace) -> int:
    from ray_sentinel.store.readonly import read_only_prometheus
    from ray_sentinel.store.tsdb import find_database

    if not args.folder:
        raise UsageError("name the folder of the job, or of its Prometheus's data")
    database = find_database(Path(args.folder).expanduser())
    done = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: done.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with read_only_prometheus(database, binary=args.binary, port=args.port) as opened:
            _say(opened, as_json=args.json)
            done.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _say(opened: tuple[str, Any, list[str]], *, as_json: bool) -> None:
    url, database, notes = opened
    if as_json:
        print_json({"url": url, "data": database.path, "span": database.span, "notes": notes})
    else:
        lines = [f"{database.path} is open at {url}", *notes, "Ctrl-C closes it"]
        sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stdout.flush()
