"""What tests of other users share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder like ``/tmp``: everybody may write there, nobody may take what is another's."""
    with tempfile.TemporaryDirectory(prefix="open-folder-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder
