"""Builds diagnoses and their texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import msgspec
import numpy as np

from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.stop import ProgressStop
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, Figure, Link, Outcome
from ray_sentinel.model.rank_names import runs


def moment(at: float) -> str:
    """A time for people.

    >>> moment(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def spread(values: Sequence[float], unit: str) -> str:
    """Smallest to largest of the known values, for people.

    >>> spread([300.2, 310.0], "W")
    '300-310 W'
    """
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "-"
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def count(number: float, things: str) -> str:
    """A number of things, whose name is given in the plural.

    >>> count(1, "ACK timeouts"), count(2000, "GPU errors in the kernel log")
    ('1 ACK timeout', '2,000 GPU errors in the kernel log')
    """
    if round(number) == 1:
        for plural, one in (("errors", "error"), ("timeouts", "timeout"), ("retries", "retry"),
                            ("packets", "packet"), ("notifications", "notification"),
                            ("replays", "replay"), ("rows", "row")):  # fmt: skip
            things = things.replace(plural, one)
    return f"{number:,.0f} {things}"


def size(value: float) -> str:
    """Bytes for people."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def amount(value: float, unit: str) -> str:
    """A whole number of units for people.

    >>> amount(2000.4, "/s"), amount(12.0, "%"), amount(4e9, "B")
    ('2,000/s', '12 %', '4.0 GB')
    """
    return size(value) if unit == "B" else f"{value:,.0f} {unit}".replace(" /", "/").strip()


def plain(
    outcome: Outcome, cause: str, text: str, confidence: float, evidence: tuple[Figure, ...] = ()
) -> Diagnosis:
    """An answer without culprits."""
    return Diagnosis(
        outcome=outcome, cause=cause, root_cause=text, confidence=confidence, evidence=evidence
    )


def linked(anomalies: Iterable[Anomaly]) -> list[Link]:
    """The first anomaly as the root, the others as its consequences."""
    return [
        anomaly.link("root" if index == 0 else "intermediate")
        for index, anomaly in enumerate(anomalies)
    ]


def job_stops(case: JobCase, stop: ProgressStop, at: float) -> Link:
    """The end of the job's steps as the end of a causal chain."""
    return Link(role="symptom", text="the job stops", at=at, uncertainty=stop.uncertainty,
                metric=case.line.metric, promql=case.promql("train.step"))  # fmt: skip


def cards(found: Iterable[tuple[str, str]]) -> str:
    """GPUs, given as host and number, for people; those of one host together.

    >>> cards([("n1", "0"), ("n1", "1"), ("n1", "2"), ("n3", "7")])
    'GPUs 0-2 of n1, GPU 7 of n3'
    """
    by_host: dict[str, list[str]] = {}
    for host, gpu in sorted(set(found)):
        by_host.setdefault(host, []).append(gpu)
    return listed([f"{_numbers(own)} of {host}" for host, own in by_host.items()])


def _numbers(gpus: Sequence[str]) -> str:
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    if all(gpu.isdecimal() for gpu in gpus):
        return f"GPUs {', '.join(runs(sorted(map(int, gpus))))}"
    return f"GPUs {listed(gpus, 8)}"


def of_hosts(anomalies: Iterable[Anomaly]) -> list[Anomaly]:
    """The first of each kind on each host, with the number of further GPUs that show the same."""
    alike: dict[tuple[str, str], list[Anomaly]] = {}
    for one in anomalies:
        alike.setdefault((one.kind, one.host), []).append(one)
    found = []
    for same in alike.values():
        more = len({one.gpu for one in same}) - 1
        text = f"{same[0].text}; {more} more of its GPUs likewise" if more else same[0].text
        found.append(msgspec.structs.replace(same[0], text=text))
    return found


def culprits_of(anomalies: Iterable[Anomaly]) -> tuple[CauseLocation, ...]:
    """Each host or GPU once, with the last anomaly seen on it."""
    found = {
        (one.host, one.gpu): CauseLocation(host=one.host, gpu=one.gpu, reason=one.text)
        for one in anomalies
    }
    return tuple(found.values())


def chain(
    roots: Sequence[Anomaly], culprits: Sequence[CauseLocation], text: str, *symptoms: Link
) -> tuple[Link, ...]:
    """Root → what followed from it → what was noticed, in order of time.

    Without any earlier anomaly the finding itself is the root.
    """
    links = linked(roots)
    if not links:
        first = symptoms[0]
        host = culprits[0].host if culprits else ""
        links = [
            Link(role="root", text=text, at=first.at, uncertainty=first.uncertainty, host=host)
        ]
    return (*links, *symptoms)
