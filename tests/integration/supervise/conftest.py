"""What tests of supervised runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.coordinator_page import Page


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.close()
