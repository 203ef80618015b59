"""What made the job slow: every disturbance held against the times at which steps were slow.

A cause must be there when steps are slow, be gone (or at least not yet there) when they are not,
and begin no later than they do. Where several fit, the earliest is the root; of those that begin
together the one whose mechanism is nearest to the steps.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.detect import drift, learning, pace, pressure, rdma
from ray_sentinel.diagnose.series import Bools
from ray_sentinel.model.diagnosis import Culprit

LEAST_EFFECT = 0.04
"""Steps must be so much slower while the disturbance is there."""
LEAST_EXPLAINED = 0.5
LEAST_PRECISION = 0.4
WEAK_PORT = 0.1
"""Share of the worst port's effect below which a port is a bystander."""
SLACK_SECONDS = 60.0
TOGETHER_SECONDS = 90.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A disturbance that may have slowed the job."""

    domain: str
    """"network", "thermal", "power", "cpu", "storage", "memory", "training"."""
    cause: str
    text: str
    at: float
    cells: Bools
    culprits: tuple[Culprit, ...]
    anomalies: tuple[Anomaly, ...]
    prior: float
    """How directly it can slow every step, 0..1."""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that fits. Shares are 0..1."""

    candidate: Candidate
    effect: float
    """How much slower steps are while it is there."""
    explained: float
    """Share of the slow time in which it was there."""
    precision: float
    """Share of its own time in which steps were slow."""
    recovered: bool
    """Steps were fast again after it ended."""


def find(case: Case) -> tuple[Attribution, ...]:
    """What fits, the root first; empty where nothing was slow or nothing fits."""
    tempo = case.once(pace.find)
    if not tempo.spells:
        return ()
    fits = [fit for fit in (_fit(case, one) for one in candidates(case)) if fit is not None]
    if not fits:
        return ()
    earliest = min(fit.candidate.at for fit in fits)
    together = [fit for fit in fits if fit.candidate.at <= earliest + TOGETHER_SECONDS]
    root = max(together, key=lambda fit: fit.candidate.prior * (0.5 + fit.explained))
    rest = sorted((fit for fit in fits if fit is not root), key=lambda fit: fit.candidate.at)
    return (root, *rest)


def _fit(case: Case, candidate: Candidate) -> Attribution | None:
    tempo = case.once(pace.find)
    slow = tempo.cells(case.times) & case.steady
    cells = candidate.cells & case.steady
    if cells.sum() < 2 or not slow.any():
        return None
    effect = pace.effect(case, candidate.cells)
    explained = float((slow & cells).sum() / slow.sum())
    precision = float((slow & cells).sum() / cells.sum())
    if np.isnan(effect) or effect < LEAST_EFFECT or precision < LEAST_PRECISION:
        return None
    if explained < LEAST_EXPLAINED or not _in_time(case, candidate, tempo):
        return None
    return Attribution(
        candidate=candidate,
        effect=effect,
        explained=explained,
        precision=precision,
        recovered=_recovered(case, candidate.cells, tempo),
    )


def _in_time(case: Case, candidate: Candidate, tempo: pace.Pace) -> bool:
    """It began no later than some slow spell (each may have a cause of its own).

    Only time in which steps were seen counts: in a checkpoint nothing can be said of either.
    """
    doubt = 2 * case.cell + max(anomaly.uncertainty for anomaly in candidate.anomalies)
    for spell in tempo.spells:
        between = case.steady & (case.times > spell.start) & (case.times < candidate.at)
        late = float(between.sum()) * case.cell if candidate.at < spell.end else np.inf
        early = case.steady & (case.times > candidate.at) & (case.times < spell.start)
        slack = spell.uncertainty + doubt + SLACK_SECONDS
        if late <= slack and (spell is tempo.spells[0] or early.sum() * case.cell <= slack):
            return True
    return False


def _recovered(case: Case, cells: Bools, tempo: pace.Pace) -> bool:
    last = np.flatnonzero(cells)[-1]
    after = case.steady & (np.arange(cells.size) > last) & np.isfinite(tempo.relative)
    return bool(after.sum() >= 3 and np.median(tempo.relative[after]) < 1.0 + pace.SLOWER)


def candidates(case: Case) -> list[Candidate]:
    """Every disturbance of the job that could slow its steps."""
    return [*_network(case), *_heat(case), *_pressures(case), *_routing(case)]


def _network(case: Case) -> list[Candidate]:
    ports = case.once(rdma.find)
    found = []
    if ports:
        union = np.any([port.cells for port in ports], axis=0)
        alone = [_influence(case, port, ports) for port in ports]
        best = max((effect for effect in alone if np.isfinite(effect)), default=float("nan"))
        least = max(LEAST_EFFECT, WEAK_PORT * best) if np.isfinite(best) else -np.inf
        guilty = [
            port
            for port, effect in zip(ports, alone, strict=True)
            if port.priority == 1 or least == -np.inf or effect >= least
        ]
        cells = np.any([port.cells for port in guilty], axis=0) if guilty else union
        found.append(
            Candidate(
                domain="network",
                cause="rdma-link",
                text="RDMA trouble on "
                + ", ".join(f"{port.unit} of {port.host}" for port in guilty[:4]),
                at=min(port.at for port in guilty or ports),
                cells=cells,
                culprits=tuple(port_culprit(port) for port in guilty),
                anomalies=tuple(
                    sorted((a for port in guilty or ports for a in port.anomalies),
                           key=lambda a: a.at)
                ),
                prior=0.95,
            )
        )  # fmt: skip
    jammed = case.once(rdma.congested)
    hosts = {port.host for port in jammed}
    if jammed and len(hosts) >= max(2, len(case.hosts) // 2):
        found.append(
            Candidate(
                domain="network",
                cause="congestion",
                text=f"congestion notifications on {len(hosts)} of {len(case.hosts)} hosts",
                at=min(port.at for port in jammed),
                cells=np.any([port.cells for port in jammed], axis=0),
                culprits=(),
                anomalies=tuple(
                    anomaly
                    for port in jammed
                    for anomaly in port.anomalies
                    if anomaly.kind == "rdma.cnp"
                )[:4],
                prior=0.8,
            )
        )
    return found


def port_culprit(port: rdma.PortTrouble) -> Culprit:
    """The port as a culprit."""
    return Culprit(
        host=port.host,
        device=port.device,
        port=port.port,
        reason="; ".join(anomaly.text for anomaly in port.anomalies),
    )


def _influence(case: Case, port: rdma.PortTrouble, ports: tuple[rdma.PortTrouble, ...]) -> float:
    """How slow steps are while only this port is troubled, against no port at all."""
    tempo = case.once(pace.find)
    others = np.zeros_like(port.cells)
    for other in ports:
        if other is not port:
            others = others | other.cells
    known = np.isfinite(tempo.relative) & case.steady
    alone, quiet = known & port.cells & ~others, known & ~port.cells & ~others
    if alone.sum() < 3 or quiet.sum() < 3:
        alone = known & port.cells
        quiet = known & ~port.cells
    if alone.sum() < 3 or quiet.sum() < 3:
        return float("nan")
    return float(np.median(tempo.relative[alone]) / np.median(tempo.relative[quiet]) - 1.0)


def _heat(case: Case) -> list[Candidate]:
    hot, clocks = list(case.once(drift.hot)), case.once(drift.clocks)
    weak = case.once(drift.power)
    found = []
    throttled = {(one.host, one.gpu) for one in (*clocks, *weak)}
    # A card that clocks down draws less and should cool: one that warms up is throttled by heat.
    slowed = {(one.host, one.gpu) for one in clocks} - {(one.host, one.gpu) for one in hot}
    hot += [one for one in case.once(drift.warm) if (one.host, one.gpu) in slowed]
    guilty = [
        one for one in hot if (one.host, one.gpu) in throttled or one.peak >= drift.NEAR_THROTTLING
    ]
    if guilty:
        found.append(_of_gpus("thermal", "thermal", "overheating", guilty, clocks + weak, 0.95))
    warm = {(one.host, one.gpu) for one in hot}
    cold = [one for one in clocks if (one.host, one.gpu) not in warm]
    if cold:
        found.append(_of_gpus("power", "clock-drop", "a core clock held down", cold, weak, 0.9))
    slack = {(one.host, one.gpu) for one in (*hot, *clocks)}
    capped = [one for one in weak if (one.host, one.gpu) not in slack]
    # Power that falls on cards of several hosts at once answers to what the model computes.
    if capped and len({one.host for one in capped}) == 1:
        found.append(_of_gpus("power", "power-drop", "power held down", capped, (), 0.6))
    return found


def _of_gpus(
    domain: str, cause: str, what: str, guilty: list[drift.Drift],
    more: tuple[drift.Drift, ...], prior: float,
) -> Candidate:  # fmt: skip
    cells = np.any([one.cells for one in guilty], axis=0)
    names = {(one.host, one.gpu) for one in guilty}
    follow = [one.anomaly for one in more if (one.host, one.gpu) in names]
    return Candidate(
        domain=domain,
        cause=cause,
        text=f"{what} of " + ", ".join(f"GPU {gpu} of {host}" for host, gpu in sorted(names)[:4]),
        at=min(one.at for one in guilty),
        cells=cells,
        culprits=tuple(
            Culprit(host=one.host, gpu=one.gpu, reason=one.anomaly.text) for one in guilty
        ),
        anomalies=(*(one.anomaly for one in guilty), *follow),
        prior=prior,
    )


def _pressures(case: Case) -> list[Candidate]:
    found = []
    for one in case.once(pressure.find):
        culprits = () if one.uniform else tuple(
            Culprit(host=anomaly.host, reason=anomaly.text) for anomaly in one.anomalies
        )  # fmt: skip
        found.append(
            Candidate(
                domain=one.domain,
                cause={"cpu": "cpu-contention", "storage": "io-contention",
                       "memory": "memory-pressure"}[one.domain],
                text=one.text,
                at=one.at,
                cells=one.cells,
                culprits=culprits,
                anomalies=one.anomalies,
                prior=0.85,
            )
        )  # fmt: skip
    return found


def _routing(case: Case) -> list[Candidate]:
    return [
        Candidate(
            domain="training",
            cause=curve.kind,
            text=curve.anomaly.text,
            at=curve.at,
            cells=curve.cells,
            culprits=(),
            anomalies=(curve.anomaly,),
            prior=0.9 if curve.kind == "moe-shift" else 0.7,
        )
        for curve in case.once(learning.find)
        if curve.kind in {"moe-shift", "loss-nan", "grad-nan"}
    ]
