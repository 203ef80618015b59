"""How ``pytest -n`` shares the tests out: a file goes to one worker, and each worker is apart.

Where workers cannot be apart, one of them runs all that starts ranks or clusters, one after the
other, and the others what is left.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import apart

ALONE = ("tests/adversary/", "tests/faults/", "tests/integration/")
"""Start ranks or agents, which other tests' agents and ranks would see."""
NO_RANKS = tuple(f"tests/integration/{part}/" for part in ("collect", "exporters", "store"))


class Files(LoadScopeScheduling):
    """File by file, in the order of their names: the long ones, faults and integration, first."""

    def __init__(self, config: pytest.Config, log: Producer, together: bool) -> None:
        """With ``together`` all that would disturb one another is one unit of work."""
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self.together = together

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        disturbing = file.startswith(ALONE) and not file.startswith(NO_RANKS)
        return "ranks" if disturbing and self.together else file


class Streams:
    """A plugin of pytest, for the process that shares out."""

    def __init__(self, config: pytest.Config) -> None:
        self.python = apart.python()
        if self.python:
            config.option.tx = [f"popen//python={self.python}" for _ in config.option.tx]

    def pytest_report_header(self) -> str:
        return "workers: apart" if self.python else "workers: not apart, ranks in one only"

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Files:
        return Files(config, log, together=self.python is None)
