"""Parses ``ray status`` and ``ray job status`` into facts.

``ray status`` prints, of every version since 1.0 (``python/ray/autoscaler/_private/util.py``,
``format_info_string``), a paragraph ``Usage:`` (or ``Total Usage:``) with lines such as
``2.0/8.0 GPU``, ``2.0/8.0 CPU (1.0 used of 4.0 reserved in placement groups)``, and one
``Demands:`` with ``{'GPU': 8.0}: 1+ pending tasks/actors``, or ``(no resource demands)``.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.model.health import RayResources
from ray_sentinel.model.ray_job import JobState, job_state

_USAGE = re.compile(r"^\s*(?P<used>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) (?P<name>GPU|CPU)\b")
_DEMAND = re.compile(r"^\s*(?P<what>[\[{].*?:\s*\d+\+? pending .*|.*\bfrom request_resources\b.*)$")
_ACTIVE = re.compile(r"^\s*(?P<count>\d{1,9}) node_[0-9a-f]+|^\s*(?P<named>\d{1,9}) [\w.-]+\s*$")
_JOB = re.compile(r"[Ss]tatus for job '(?P<id>[^']+)': (?P<status>[A-Z]+)")
_DONE = re.compile(r"Job '(?P<id>[^']+)' (?P<how>succeeded|failed|was stopped)")
_HOW: dict[str, JobState] = {"succeeded": "SUCCEEDED", "failed": "FAILED", "was stopped": "STOPPED"}


def read_status(text: str) -> RayResources | None:
    """What Ray has, has allotted, and is asked for; None if ``text`` is not a status.

    Bundles of placement groups count as allotted, whether tasks use them or not.
    """
    found: dict[str, tuple[float, float]] = {}
    demands: list[str] = []
    nodes, section = 0, ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.endswith(":") and len(bare) < 40:
            section = bare[:-1].lower()
        elif match := _USAGE.match(line):
            # Per-node paragraphs of the verbose form come later: the totals stay.
            found.setdefault(match["name"], (float(match["used"]), float(match["total"])))
        elif "demand" in section and (match := _DEMAND.match(line)):
            demands.append(match["what"].strip())
        elif section in ("active", "healthy", "idle") and (match := _ACTIVE.match(line)):
            nodes += int(match["count"] or match["named"])
    if not found:
        return None
    gpus, cpus = found.get("GPU", (0.0, 0.0)), found.get("CPU", (0.0, 0.0))
    return RayResources(
        gpus_total=gpus[1],
        gpus_allotted=gpus[0],
        cpus_total=cpus[1],
        cpus_allotted=cpus[0],
        demands=tuple(demands),
        nodes=nodes or None,
    )


def read_job_status(text: str, job_id: str) -> JobState:
    """The job's state; UNKNOWN if ``text`` does not contain it."""
    for match in _DONE.finditer(text):
        if match["id"] == job_id:
            return _HOW[match["how"]]
    for match in _JOB.finditer(text):
        if match["id"] == job_id:
            return job_state(match["status"])
    return "UNKNOWN"
