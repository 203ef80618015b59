"""A node's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collecting import GOOD, CollectingNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CollectingNode]:
    """Not started yet; ended afterwards."""
    node = CollectingNode(tmp_path)
    yield node
    node.stop()


@pytest.fixture
def good_one_beside_it(node: CollectingNode) -> None:
    """Whatever another does, this one goes on; see ``still_good``."""
    node.write("good.py", GOOD)
