"""When ranks arrive at their collectives → who is slow, and what it costs the job."""

from ray_sentinel.evidence.stragglers.explain import explain

__all__ = ["explain"]
