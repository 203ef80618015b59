"""Answers of NCCL's and RCCL's RAS service: who hangs the job, where they show it."""

from ray_sentinel.evidence.nccl_ras.explain import explain

__all__ = ["explain"]
