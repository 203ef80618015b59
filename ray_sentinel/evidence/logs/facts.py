"""What a log's header says of the job: nodes, world size, arguments, checkpoint interval."""

from __future__ import annotations

from ray_sentinel import regex as re

_FACTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("arguments", re.compile(r"\bPASSTHROUGH_ARGS\s*[=:]\s*(.+)")),
    (
        "nodes",
        re.compile(
            r"\b(?:NNODES|SLURM_(?:JOB_)?NUM_NODES|num_nodes|nnodes)['\"]?\s*[=:]\s*['\"]?(\d+)\b"
        ),
    ),
    ("node_list", re.compile(r"\b(?:NODE_LIST|SLURM_(?:JOB_)?NODELIST)\s*[=:]\s*(\S+)")),
    ("world_size", re.compile(r"\bworld[_ ]size['\"]?\s*[=:]?\s*['\"]?(\d+)\b", re.IGNORECASE)),
    (
        "checkpoint_period",
        re.compile(
            r"\b(?:checkpoint_(?:period|interval)|save_steps|save[-_]interval|save_freq)"
            r"['\"]?\s*[=:. ]+['\"]?(\d+)\b"
        ),
    ),
    (
        "total_steps",
        re.compile(
            r"\b(?:Config param steps: |max_steps['\"]?\s*[=:]\s*|train[-_]iters['\"]?\s*[=:. ]+"
            r"|PASSTHROUGH_ARGS\b.*\bsteps=|Total optimization steps = "
            r"|total_training_steps['\"]?\s*[=:]\s*)(\d[\d,]*)\b"
        ),
    ),
    (
        "heartbeat_timeout_seconds",
        re.compile(r"\bjax_distributed_heartbeat_timeout_seconds['\"]?\s*[=: ]+(\d+)\b"),
    ),
    ("job_id", re.compile(r"\b(?:SLURM_JOB_ID|SLURM_JOBID)\s*[=:]\s*(\d+)\b|\b(raysubmit_\w+)\b")),
    (
        "resumed_from_step",
        re.compile(
            r"(?:resum\w+|restor\w+|load\w+ checkpoint)[^\n]{0,120}?"
            r"(?:step[_ ]?|iteration |checkpoint-|iter_0*)(\d+)\b",
            re.IGNORECASE,
        ),
    ),
)
_HEAD = 256 * 1024
_DIGITS = 18
_LONGEST = 2000


def read_header(head: bytes) -> dict[str, str]:
    """The first value of each fact in the front of a log."""
    text = head[:_HEAD].decode("utf-8", "replace")
    found: dict[str, str] = {}
    for name, pattern in _FACTS:
        match = pattern.search(text)
        if match is not None:
            value = next((group for group in match.groups() if group), "")
            value = value[:_LONGEST].strip()
            value = value.replace(",", "") if name == "total_steps" else value
            found[name] = value[:_DIGITS] if value.isdigit() else value
    return found
