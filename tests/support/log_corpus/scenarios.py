"""All failures by name; each makes the finished job and says what is true of it."""

from __future__ import annotations

from tests.support.log_corpus import in_jobs, in_machines, in_ranks, in_startup
from tests.support.log_corpus.truth import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for room in (in_ranks, in_machines, in_jobs, in_startup)
    for scenario in room.SCENARIOS
}
