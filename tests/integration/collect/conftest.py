"""A node's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collecting import CollectingNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CollectingNode]:
    """Not started yet; ended afterwards."""
    node = CollectingNode(tmp_path)
    yield node
    node.stop()
