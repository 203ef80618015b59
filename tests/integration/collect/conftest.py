"""A node's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collecting import GOOD, CollectingNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CollectingNode]:
    """A node whose collectors are not started yet; it is stopped at the end."""
    node = CollectingNode(tmp_path)
    yield node
    node.stop()


@pytest.fixture
def good_one_beside_it(node: CollectingNode) -> None:
    """A collector that goes on whatever another one does; see ``still_good``."""
    node.write("good.py", GOOD)
