"""The log side of a diagnosis: a job's own facts, and what triage makes of its logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.diagnosis import Figure
from ray_sentinel.model.triage import Triage
from ray_sentinel.store.joblogs import main_log, read_logs

MAX_EVIDENCE = 6
"""Most lines that are quoted for an answer."""
SURE = 0.5
"""Confidence from which triage's answer prevails over the job's own plain messages."""


def gather(folder: Path | None, progress: Callable[[str], None]) -> LogFacts:
    """Facts from the logs in a job's folder; empty if there are none."""
    if folder is None or not folder.is_dir():
        return LogFacts()
    progress("logs")
    facts = read_logs(folder)
    main = main_log(folder)
    if main is None and not (folder / "ray_logs").is_dir():
        return facts
    answer = _triage(folder if main is None or main.parent == folder else main)
    return facts if answer is None else with_triage(facts, answer)


def _triage(path: Path) -> Triage | None:
    from ray_sentinel.logs.catalogue import load_catalogue
    from ray_sentinel.logs.triage import triage_path

    try:
        return triage_path(path, load_catalogue())
    except SentinelError:
        # Logs that triage can make nothing of leave the series as they are.
        return None


def with_triage(facts: LogFacts, answer: Triage) -> LogFacts:
    """The facts with the class of failure, its time and its nodes as triage sees them."""
    failed = facts.failed or answer.outcome == "failed"
    facts = msgspec.structs.replace(facts, ended=answer.outcome, failed=failed)
    if answer.outcome in {"running", "completed"}:
        return msgspec.structs.replace(facts, failure="")
    unsure = answer.kind == "unknown-death" or answer.confidence < SURE
    if unsure and facts.failure:
        return facts
    nodes = tuple(dict.fromkeys(one.node for one in answer.culprits if one.node))
    heartbeat = answer.kind == "heartbeat-timeout"
    lines = [
        Figure(text=f"{line.file}:{line.line or '?'}: {line.text[:300]}", source="log")
        for line in answer.evidence[:MAX_EVIDENCE]
    ]
    timeout = answer.facts.get("heartbeat_timeout_seconds", "")
    return msgspec.structs.replace(
        facts,
        failure=answer.kind,
        crash_at=facts.crash_at or (answer.first_error_at if heartbeat else None),
        accused=facts.accused or (nodes if heartbeat else ()),
        heartbeat_timeout=facts.heartbeat_timeout or (float(timeout) if timeout else None),
        failed_checkpoint=facts.failed_checkpoint if answer.kind == "checkpoint-fs-error" else None,
        facts=(*facts.facts, *lines),
    )
