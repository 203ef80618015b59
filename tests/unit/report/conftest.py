"""The incident that the reports of this folder are of."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ray_sentinel.model.incident import Incident

RECORD = Path(__file__).parents[2] / "fixtures/incidents/rank_4_sleeps.json"
"""Of six ranks, one sleeps, and five wait for it in a collective."""


@pytest.fixture(scope="package")
def incident() -> Incident:
    return msgspec.json.decode(RECORD.read_bytes(), type=Incident)
