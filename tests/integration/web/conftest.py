"""A browser for all tests: it takes longer to start than a test takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The process; no test takes its tab as another file has left it."""
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def chromium(one_browser: Browser) -> Browser:
    """With a tab of a user of its own for the file, who has seen, stored and allowed nothing."""
    one_browser.renew()
    return one_browser
