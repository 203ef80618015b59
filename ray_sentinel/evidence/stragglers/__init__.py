"""From when ranks arrive at their collectives: who is slow, and what that costs the job."""

from ray_sentinel.evidence.stragglers.explain import explain

__all__ = ["explain"]
