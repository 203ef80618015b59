"""The other user of these tests is one: what is root's alone is not to be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.other_user import NOBODY, as_nobody


def test_the_other_user_is_not_root(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)

    assert as_nobody(os.getuid) == NOBODY
    with pytest.raises(PermissionError):
        as_nobody(secret.read_text)
