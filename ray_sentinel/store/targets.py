"""Whom to scrape, where no coordinator tells it: asked of the agents, and of Ray."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray_sentinel.errors import UnreachableError
from ray_sentinel.serving.client import get
from ray_sentinel.store.scrape_config import RAY_FILE

log = logging.getLogger(__name__)

DEADLINE = 5.0
"""Seconds for one answer."""
MOST_BYTES = 16 << 20
"""Of one answer: a list of some thousand agents is far smaller."""


class Targets:
    """All agents, from whichever of them answers: the first may have gone with its node.

    Raises UnreachableError where the first one cannot be asked to begin with.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._known = ask(url)

    def look(self) -> tuple[str, ...]:
        """``host:port`` of all agents; the last that were known where none answers now."""
        others = (f"http://{place}/sd" for place in self._known)
        for url in dict.fromkeys((self._url, *others)):
            try:
                self._known = ask(url)
            except UnreachableError as error:
                log.debug("%s", error)
            else:
                self._url = url
                break
        return self._known


def ask(url: str) -> tuple[str, ...]:
    """The targets that a service discovery lists. Raises UnreachableError."""
    body = get(url, seconds=DEADLINE, most_bytes=MOST_BYTES)
    try:
        groups: Any = json.loads(body)
        return tuple(sorted({str(place) for group in groups for place in group["targets"]}))
    except (ValueError, TypeError, KeyError):
        raise UnreachableError(f"{url} answers, but not with a list of agents") from None


def ray_targets(temp_dir: Path, hosts: Mapping[str, str]) -> dict[str, str]:
    """Ray's own metrics: ``host:port`` → host label, from the file that Ray keeps on its head.

    ``hosts`` is address → host. Nothing where there is no such file, or it is half written.
    """
    try:
        groups: Any = json.loads((temp_dir / RAY_FILE).read_bytes())
        places = [str(place) for group in groups for place in group["targets"]]
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return {place: hosts.get(_address(place), _address(place)) for place in places}


def _address(place: str) -> str:
    return place.rpartition(":")[0].strip("[]")
