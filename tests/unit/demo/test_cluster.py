"""A cluster of the demo leaves nothing behind, also where it does not come up."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from ray_sentinel.demo.cluster import start_machines


@pytest.mark.parametrize("usual", [None, "/where/the/user/has/it"])
def test_where_the_head_does_not_start_all_is_as_it_was(
    usual: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> NoReturn:
        assert os.environ["RAY_TMPDIR"].startswith(str(tmp_path))
        raise RuntimeError("the head did not start")

    ray, utils = ModuleType("ray"), ModuleType("ray.cluster_utils")
    monkeypatch.setattr(utils, "Cluster", fail, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.cluster_utils", utils)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # What ``start_machines`` sets for good is taken back with the rest.
    monkeypatch.setattr(os, "environ", {**os.environ})
    os.environ.pop("RAY_TMPDIR", None)
    if usual is not None:
        os.environ["RAY_TMPDIR"] = usual
    level = logging.getLogger("ray").level
    with pytest.raises(RuntimeError, match="did not start"), start_machines():
        raise AssertionError("there is no cluster")
    logging.getLogger("ray").setLevel(level)
    assert os.environ.get("RAY_TMPDIR") == usual
    assert list(tmp_path.iterdir()) == []
