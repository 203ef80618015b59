"""From the flight-recorder dumps of all ranks: who hangs the job, and what everybody else waits
for."""

from ray_sentinel.evidence.flight_recorder.explain import explain
from ray_sentinel.evidence.flight_recorder.failed import explain_failed

__all__ = ["explain", "explain_failed"]
