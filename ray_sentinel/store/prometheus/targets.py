"""Scrape targets without a coordinator, from the agents and Ray themselves."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray_sentinel.config import ScrapeConfig
from ray_sentinel.errors import ConfigError, UnreachableError
from ray_sentinel.http.client import get
from ray_sentinel.store.prometheus.scrape_config import RAY_FILE, check_scrape

log = logging.getLogger(__name__)

DEADLINE = 5.0
"""Seconds to wait for one answer."""
MOST_BYTES = 16 << 20
"""Most bytes of one answer: a list of some thousand agents is far smaller."""


class Targets:
    """All agents, from whichever of them answers: the first one may have gone with its node.

    ``scrape`` is how agents are read. Raises UnreachableError if the first one cannot be reached
    initially, ConfigError if ``scrape`` cannot be used.
    """

    def __init__(self, url: str, scrape: ScrapeConfig | None = None) -> None:
        self._url, self._scrape = url, scrape
        self._known = ask(url, scrape)

    def poll(self) -> tuple[str, ...]:
        """All agents, as ``host:port`` or ``https://host:port``; the last known ones if none
        answers now."""
        others = (
            f"{place}/sd" if "://" in place else f"http://{place}/sd" for place in self._known
        )
        for url in dict.fromkeys((self._url, *others)):
            try:
                self._known = ask(url, self._scrape)
            except UnreachableError as error:
                log.debug("%s", error)
            else:
                self._url = url
                break
        return self._known


def ask(url: str, scrape: ScrapeConfig | None = None) -> tuple[str, ...]:
    """The targets that a service discovery lists. Raises UnreachableError, and ConfigError if
    ``scrape`` cannot be used."""
    access = scrape or ScrapeConfig()
    body = get(
        url,
        seconds=DEADLINE,
        most_bytes=MOST_BYTES,
        headers=authorization(access),
        tls=client_context(access) if url.startswith("https://") else None,
    )
    try:
        groups: Any = json.loads(body)
        return tuple(
            sorted({_target(place, group) for group in groups for place in group["targets"]})
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnreachableError(f"{url} answers, but not with a list of agents") from None


def _target(place: Any, group: Any) -> str:
    labels = group.get("labels") or {}
    return f"https://{place}" if labels.get("__scheme__") == "https" else str(place)


def client_context(scrape: ScrapeConfig) -> ssl.SSLContext:
    """The TLS context that checks an agent's certificate. Raises ConfigError.

    Python checks the name that was connected to; with a ``server_name`` of its own, a certificate
    of the named authority is enough.
    """
    try:
        context = ssl.create_default_context(cafile=scrape.ca_file or None)
        if scrape.cert_file:
            context.load_cert_chain(scrape.cert_file, scrape.key_file)
    except (OSError, ValueError) as error:
        names = ", ".join(filter(None, (scrape.ca_file, scrape.cert_file, scrape.key_file)))
        raise ConfigError(f"[scrape] {names}: cannot be used: {error}") from None
    if scrape.server_name or scrape.insecure_skip_verify:
        context.check_hostname = False
    if scrape.insecure_skip_verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def authorization(scrape: ScrapeConfig) -> dict[str, str]:
    """The header that authenticates us. Raises ConfigError if its file cannot be read."""
    check_scrape(scrape)
    file = scrape.password_file or scrape.bearer_token_file
    if not file:
        return {}
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"[scrape] {file} cannot be read: {error}") from None
    if scrape.bearer_token_file:
        return {"Authorization": f"Bearer {secret}"}
    pair = base64.b64encode(f"{scrape.username}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def ray_targets(temp_dir: Path, hosts: Mapping[str, str]) -> dict[str, str]:
    """Ray's own metrics: ``host:port`` → host label, from the file that Ray keeps on its head.

    ``hosts`` is address → host. Empty if there is no such file, or it is incomplete.
    """
    try:
        groups: Any = json.loads((temp_dir / RAY_FILE).read_bytes())
        places = [str(place) for group in groups for place in group["targets"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return {place: hosts.get(_address(place), _address(place)) for place in places}


def _address(place: str) -> str:
    return place.rpartition(":")[0].strip("[]")
