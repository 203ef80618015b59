"""Print the scrape configuration (`prometheus config`) for a Prometheus of your own."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ray_sentinel.cli.options import add_address
from ray_sentinel.cli.output import print_json
from ray_sentinel.config import ScrapeConfig
from ray_sentinel.errors import UnreachableError

if TYPE_CHECKING:  # 30 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.store.prometheus.scrape_config import TargetDiscovery

HELP = "print the scrape configuration for a Prometheus of your own"
RAY_TEMP = "/tmp/ray"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="print a PodMonitor of the Prometheus operator instead",
    )
    parser.add_argument(
        "--namespace",
        default="",
        metavar="NAME",
        help="with --kubernetes: namespace of the PodMonitor (default: none is written)",
    )
    parser.add_argument(
        "--sd",
        default="",
        metavar="URL",
        help="an agent's target list, http://HOST:9400/sd (default: from the watched cluster)",
    )
    parser.add_argument(
        "--rules",
        action="append",
        default=[],
        metavar="PATH",
        help="rule file to name in the configuration (repeatable)",
    )
    parser.add_argument(
        "--ray-temp-dir",
        default=RAY_TEMP,
        metavar="DIR",
        help="Ray's temp dir on the head (default: %(default)s)",
    )
    parser.add_argument(
        "--ray-dashboard",
        default="",
        metavar="URL",
        help="URL of Ray's dashboard, from which a Prometheus elsewhere learns Ray's own targets",
    )
    parser.add_argument(
        "--ray-token-file",
        default="",
        metavar="FILE",
        help="file with the cluster's token, if Ray asks for one (~/.ray/auth_token)",
    )
    add_address(parser)
    add_scrape_arguments(parser)


def add_scrape_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how agents with a ``web_config_file`` are read; paths as Prometheus sees them."""
    group = parser.add_argument_group("agents with TLS or authentication (agent.web_config_file)")
    group.add_argument(
        "--ca-file",
        default="",
        metavar="FILE",
        help="certificates to trust (default: those that the system trusts)",
    )
    group.add_argument(
        "--server-name",
        default="",
        metavar="NAME",
        help="name in the agents' certificates, if these do not name the nodes' addresses",
    )
    group.add_argument(
        "--cert-file",
        default="",
        metavar="FILE",
        help="certificate of Prometheus, for agents that ask for one",
    )
    group.add_argument("--key-file", default="", metavar="FILE", help="key of that certificate")
    group.add_argument("--insecure-skip-verify", action="store_true", help="trust any certificate")
    group.add_argument(
        "--username", default="", metavar="NAME", help="user name for basic authentication"
    )
    group.add_argument(
        "--password-file", default="", metavar="FILE", help="file with that user's password"
    )
    group.add_argument(
        "--bearer-token-file",
        default="",
        metavar="FILE",
        help="file with a token, instead of a user name and a password",
    )


def scrape_of(args: argparse.Namespace) -> ScrapeConfig:
    """The scrape settings in these options. Raises ConfigError if they do not go together."""
    from ray_sentinel.store.prometheus.scrape_config import check_scrape

    found = ScrapeConfig(**{name: getattr(args, name) for name in ScrapeConfig.__struct_fields__})
    check_scrape(found)
    return found


def run(args: argparse.Namespace) -> int:
    """Print the configuration."""
    text = _text(args)
    if args.json:
        print_json({"config": text})
    else:
        sys.stdout.write(text)
    return 0


def _text(args: argparse.Namespace) -> str:
    from ray_sentinel.store.prometheus.scrape_config import pod_monitor, scrape_config

    if args.kubernetes:
        return pod_monitor(args.namespace)
    return scrape_config(_discovery(args), rules=args.rules)


def _discovery(args: argparse.Namespace) -> TargetDiscovery:
    from ray_sentinel.store.prometheus.scrape_config import RAY_FILE, TargetDiscovery

    url, hosts = (args.sd, {}) if args.sd else from_cluster(args.address)
    return TargetDiscovery(
        kind="http",
        agents=url,
        ray=f"{args.ray_temp_dir.rstrip('/')}/{RAY_FILE}",
        ray_dashboard=args.ray_dashboard,
        ray_token_file=args.ray_token_file,
        hosts=hosts,
        scrape=scrape_of(args),
    )


def from_cluster(address: str) -> tuple[str, dict[str, str]]:
    """An agent's ``/sd`` and the nodes' names, from the coordinator.

    Raises UnreachableError if nobody watches, or no agent serves yet.
    """
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
