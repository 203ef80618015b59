"""A coordinator asked by HTTP: through a tunnel, or where there is no Ray to connect with.

kubectl port-forward pod/HEAD 9401 &
ray-sentinel status --url "http://127.0.0.1:9401/?token=..."
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.http.client import RefusedError, address
from ray_sentinel.http.page_client import NoTokenError, UnprovenError, page_client

T = TypeVar("T")

PATHS = {
    "status": "/api/v1/status",
    "incidents": "/api/v1/incidents",
    "lanes": "/api/v1/lanes",
    "pulse": "/api/v1/pulse",
}
"""The paths of what can be asked by HTTP. The page is read-only: what acts on the cluster needs
Ray."""
MOST_BYTES = 256 << 20
"""Most bytes of one answer, which may hold all incidents with their evidence; a larger one is
refused."""


class RemoteCoordinator:
    """Answers like a connection to the coordinator's actor, as far as its page can."""

    def __init__(self, url: str, token: str = "") -> None:
        """``url`` may hold the page's token. Raises UsageError for no URL, and NoTokenError if
        there is no token and the page does not belong to this user on this machine."""
        link = url if "//" in url else f"http://{url}"
        if address(link) is None:
            raise UsageError(f"--url {url.partition('?')[0]}: expected http://HOST:PORT")
        self._page = page_client(link, token=token)

    def page_link(self) -> str:
        """Empty: whoever asks so has the link."""
        return ""

    def renew(self) -> None:
        """Nothing to do: whoever serves the page is asked."""

    def ask(self, method: str, kind: type[T], *arguments: Any, seconds: float = 10.0) -> T:
        """Ask and decode. Raises UnreachableError, and UsageError for what needs Ray."""
        path = PATHS.get(method)
        if path is None or arguments:
            raise UsageError(f"{method} cannot be asked by --url: run it where Ray is reached")
        try:
            body = self._page.get(path, seconds=seconds, most_bytes=MOST_BYTES)
        except (RefusedError, UnprovenError, NoTokenError):
            raise
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; is the tunnel up, and the port that `status` shows as page?"
            ) from None
        try:
            return msgspec.json.decode(body, type=kind)
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{self._page.root}{path}: the coordinator is of a version that speaks otherwise"
            ) from None
