"""The part of an incident's report that comes from the time series."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.report.words import moment, percent, plain

MOST_LINES = 8
"""Of the chain, and of the evidence."""
FILE = "diagnosis.json"


def read(files: Mapping[str, bytes]) -> Diagnosis | None:
    """The diagnosis among a bundle's files; None where there is none that can be read."""
    try:
        return msgspec.json.decode(files[FILE], type=Diagnosis)
    except (KeyError, ValueError, RecursionError):
        return None


def lines(diagnosis: Diagnosis) -> list[str]:
    """What the series say, one sentence a line: the cause, who, the chain, the figures."""
    about = f"{diagnosis.analysis}, confidence {percent(diagnosis.confidence)}"
    if diagnosis.outcome != "found":
        return [f"They explain nothing here: {plain(diagnosis.root_cause)} ({about})"]
    found = [f"{plain(diagnosis.root_cause)} ({about})"]
    found += [
        f"{moment(link.at)}: {link.role}: {plain(link.text)}"
        for link in diagnosis.chain[:MOST_LINES]
    ]
    found += [plain(fact.text) for fact in diagnosis.evidence[:MOST_LINES]]
    return found
