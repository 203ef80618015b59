"""Which "rank" in a text is not the rank in the job."""

from __future__ import annotations

from ray_sentinel import regex as re

OTHER_RANK = re.compile(
    r"(?:local|node|group|[tpdecv]p|tensor|pipeline|data|expert|context|model)"
    r"(?:[-_ ](?:parallel|model))?[-_ ]?rank",
    re.IGNORECASE,
)
"""The names of ranks that are not the rank in the job: local ranks, ranks of nodes, and those in a
group of processes."""
