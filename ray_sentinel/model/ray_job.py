"""The states of a job of ``ray job submit``."""

from __future__ import annotations

from typing import Literal, get_args

JobState = Literal["RUNNING", "FAILED", "SUCCEEDED", "PENDING", "STOPPED", "UNKNOWN"]
"""Ray's words for the states; UNKNOWN where there is no such job, or Ray does not tell."""

_STATES: dict[str, JobState] = {state: state for state in get_args(JobState)}


def job_state(word: str) -> JobState:
    """The state for Ray's ``word``; UNKNOWN for a word that Ray has not used as a state so far.

    >>> job_state("FAILED"), job_state("SUSPENDED")
    ('FAILED', 'UNKNOWN')
    """
    return _STATES.get(word, "UNKNOWN")
