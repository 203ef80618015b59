"""What could have made the job slow: every disturbance that was found, with the hosts or ports
responsible for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.detect import (
    clock_reasons,
    drift,
    faults,
    learning,
    pace,
    pressure,
    rdma,
    sockets,
)
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.series import Bools
from ray_sentinel.model.diagnosis import CauseLocation
from ray_sentinel.model.thresholds import GPU_NEAR_THROTTLING

LEAST_EFFECT = 0.04
"""Share by which steps must be slower while the disturbance lasts."""
ABOVE_WANDER = 4.0
"""How far a host must be above its usual level: this many robust standard deviations of its own
fluctuation while steps are fast."""
AS_WELL = 0.5
"""Share of the best overlap with the slow steps: a host or port with less is a bystander."""
LEAST_CELLS = 8
"""Least number of cells with slow steps, and of cells with fast ones: fewer say nothing."""
WEAK_PORT = 0.1
"""Share of the worst port's effect below which a port is a bystander."""
_CONTENTION = {"cpu": "cpu-contention", "storage": "io-contention", "memory": "memory-pressure"}
"""The domain of a pressure → the cause that it would be."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A disturbance that may have slowed the job."""

    domain: str
    """The domain: "network", "device", "thermal", "power", "cpu", "storage", "memory" or
    "training"."""
    cause: str
    text: str
    at: float
    cells: Bools
    culprits: tuple[CauseLocation, ...]
    anomalies: tuple[Anomaly, ...]
    prior: float
    """How directly the candidate can slow every step, from 0 to 1."""


def find(case: JobCase) -> list[Candidate]:
    """Every disturbance of the job that could slow its steps."""
    return [
        *_links(case),
        *_congestion(case),
        *_sockets(case),
        *_worn_links(case),
        *_heat(case),
        *_pressures(case),
        *_routing(case),
    ]


def _links(case: JobCase) -> list[Candidate]:
    """All ports in trouble as one disturbance, without the bystanders among them."""
    jammed = bool(_congestion(case))
    ports = [p for p in case.once(rdma.find) if not (jammed and _lost_by_congestion(p))]
    if not ports:
        return []
    guilty = _guilty(case, ports)
    shown = guilty or tuple(ports)
    return [
        Candidate(
            domain="network",
            cause="rdma-link",
            text="RDMA trouble on "
            + ", ".join(f"{port.unit} of {port.host}" for port in shown[:4]),
            at=min(port.at for port in shown),
            cells=np.any([port.cells for port in shown], axis=0),
            culprits=tuple(port.culprit for port in guilty),
            anomalies=tuple(
                sorted((a for port in shown for a in port.anomalies), key=lambda a: a.at)
            ),
            prior=0.95,
        )
    ]


def _lost_by_congestion(port: rdma.PortTrouble) -> bool:
    """Whether the port sent packets again while it was told of congestion, and met no error: in a
    congested fabric, switches drop what any port sends."""
    return port.priority == rdma.CONGESTED and "cnp" in port.kinds


def _guilty(case: JobCase, ports: Sequence[rdma.PortTrouble]) -> tuple[rdma.PortTrouble, ...]:
    """The ports that slow the steps; all of them if none can be shown to."""
    effects = [_influence(case, port, ports) for port in ports]
    known = [effect for effect in effects if np.isfinite(effect)]
    if not known:
        return tuple(ports)
    least = max(LEAST_EFFECT, WEAK_PORT * max(known))
    return tuple(
        port
        for port, effect in zip(ports, effects, strict=True)
        if port.priority == 1 or effect >= least
    )


def _congestion(case: JobCase) -> list[Candidate]:
    jammed = case.once(rdma.congested)
    hosts = {port.host for port in jammed}
    if not jammed or len(hosts) < max(2, len(case.hosts) // 2):
        return []
    notes = [a for port in jammed for a in port.anomalies if a.kind == "rdma.cnp"]
    return [
        Candidate(
            domain="network",
            cause="congestion",
            text=f"congestion notifications on {len(hosts)} of {len(case.hosts)} hosts",
            at=min(port.at for port in jammed),
            cells=np.any([port.cells for port in jammed], axis=0),
            culprits=(),
            anomalies=tuple(notes[:4]),
            prior=0.8,
        )
    ]


def _sockets(case: JobCase) -> list[Candidate]:
    """TCP and network cards where they carry the collectives, each kind as one disturbance."""
    found = []
    for kind in ("tcp-retransmits", "nic-errors"):
        troubles = [one for one in case.once(sockets.find) if one.kind == kind]
        if not troubles:
            continue
        shown = _with_the_slow(case, troubles)
        hosts = {one.host for one in shown}
        shared = everywhere(len(hosts), len(case.hosts))
        found.append(
            Candidate(
                domain="network",
                cause=kind,
                text=f"{'TCP retransmits' if kind[0] == 't' else 'errors of network cards'} on "
                + ("all hosts" if shared else listed(sorted(hosts)))
                + ", over which the collectives run,",
                at=min(one.at for one in shown),
                cells=np.any([one.cells for one in shown], axis=0),
                culprits=() if shared else tuple(one.culprit for one in shown),
                anomalies=tuple(shown),
                prior=0.9,
            )
        )
    return found


def _with_the_slow(
    case: JobCase, troubles: Sequence[sockets.TcpTrouble]
) -> list[sockets.TcpTrouble]:
    """The troubles that match the slow steps about as well as the best does; all of them if no step
    was slow."""
    slow = case.once(pace.find).cells(case.times) & case.steady
    overlaps = [
        float((one.cells & slow).sum()) / max(float(((one.cells & case.steady) | slow).sum()), 1.0)
        for one in troubles
    ]
    best = max(overlaps)
    return [
        one
        for one, overlap in zip(troubles, overlaps, strict=True)
        if overlap >= AS_WELL * best and one.size >= WEAK_PORT * troubles[0].size
    ]


def _influence(case: JobCase, port: rdma.PortTrouble, ports: Sequence[rdma.PortTrouble]) -> float:
    """How slow steps are while only this port is in trouble, compared with when no port is."""
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


def _worn_links(case: JobCase) -> list[Candidate]:
    """Cards whose links (PCIe, NVLink, XGMI) send again and again what was damaged on the way."""
    cards: dict[tuple[str, str], list[faults.DeviceErrors]] = {}
    for fault in case.once(faults.find):
        if fault.kind in faults.LINKS and fault.severity == "degrading" and fault.gpu:
            cards.setdefault((fault.host, fault.gpu), []).append(fault)
    found = []
    for (host, gpu), errors in cards.items():
        cells = np.any([fault.cells for fault in errors], axis=0)
        counted = [f"{fault.size:,.0f} {fault.title}" for fault in errors]
        found.append(
            Candidate(
                domain="device",
                cause="degrading-link",
                text=f"GPU {gpu} of {host}, which counted {listed(counted, 2)},",
                at=float(case.times[np.flatnonzero(cells)[0]]),
                cells=cells,
                culprits=(CauseLocation(host=host, gpu=gpu, reason=errors[0].text),),
                anomalies=tuple(errors),
                prior=0.9,
            )
        )
    return found


def _heat(case: JobCase) -> list[Candidate]:
    shared = _shared_heat(case)
    return [shared] if shared is not None else _cards_heat(case)


def _shared_heat(case: JobCase) -> Candidate | None:
    """Heat or reduced clocks on all hosts at once: no card and no host is to blame."""
    hot, clocks = case.once(drift.all_hot), case.once(drift.all_clocks)
    if hot is not None and clocks is None and not GPU_NEAR_THROTTLING.crossed(hot.peak):
        hot = None  # a heavier load warms all cards, without consequences
    first = hot or clocks
    if first is None:
        return None
    count = len(case.view.panel("gpu.temp" if hot else "gpu.clock").hosts)
    what = "overheating" if hot else "core clocks held down"
    return Candidate(
        domain="thermal" if hot else "power",
        cause="thermal" if hot else "clock-drop",
        text=f"{what} of the GPUs on all {count} hosts together, as where the facility's "
        f"{'cooling' if hot else 'power'} fails,",
        at=first.at,
        cells=first.cells,
        culprits=(),
        anomalies=tuple(one for one in (hot, clocks) if one is not None),
        prior=0.95,
    )


def _cards_heat(case: JobCase) -> list[Candidate]:
    hot, clocks = list(case.once(drift.hot)), case.once(drift.clocks)
    weak = case.once(drift.power)
    found = []
    throttled = {one.card for one in (*clocks, *weak)}
    # A card that clocks down draws less and should cool: one that warms up is throttled by heat.
    slowed = {one.card for one in clocks} - {one.card for one in hot}
    hot += [one for one in case.once(drift.warm) if one.card in slowed]
    guilty = [one for one in hot if one.card in throttled or GPU_NEAR_THROTTLING.crossed(one.peak)]
    if guilty:
        more = clocks + weak
        found.append(_of_gpus(case, "thermal", "thermal", "overheating", guilty, more, 0.95))
    warm = {one.card for one in hot}
    cold = [one for one in clocks if one.card not in warm]
    if cold:
        what = "a core clock held down"
        found.append(_of_gpus(case, "power", "clock-drop", what, cold, weak, 0.9))
    explained = {one.card for one in (*hot, *clocks)}
    capped = _held_down(case, [one for one in weak if one.card not in explained])
    # Power that falls on cards of several hosts at once answers to what the model computes.
    if capped and len({one.host for one in capped}) == 1:
        found.append(_of_gpus(case, "power", "power-drop", "power held down", capped, (), 0.6))
    return found


def _held_down(case: JobCase, weak: list[drift.Drift]) -> list[drift.Drift]:
    """The cards that were kept from drawing power: the driver says so, or their clocks are not
    known. At an unchanged clock, a card draws less because it has less to do: it waits for others.
    """
    timed = {(row.host, row.gpu) for row in case.view.panel("gpu.clock").rows}
    return [
        one
        for one in weak
        if one.card not in timed or clock_reasons.of_cards(case, {one.card: one.cells}).text
    ]


def _of_gpus(
    case: JobCase, domain: str, cause: str, what: str, guilty: list[drift.Drift],
    more: tuple[drift.Drift, ...], prior: float,
) -> Candidate:  # fmt: skip
    cells = np.any([one.cells for one in guilty], axis=0)
    names = {one.card for one in guilty}
    why = clock_reasons.of_cards(case, {one.card: one.cells for one in guilty})
    follow = [one for one in more if one.card in names]
    return Candidate(
        domain=domain,
        cause=cause,
        text=f"{what} of {wording.cards(names)}" + (f" ({why.text})" if why.text else ""),
        at=min(one.at for one in guilty),
        cells=cells,
        culprits=wording.culprits_of(guilty),
        anomalies=(*guilty, *follow, *why.anomalies),
        prior=prior,
    )


def _pressures(case: JobCase) -> list[Candidate]:
    found = []
    for one in case.once(pressure.find):
        hosts = one.hosts if one.uniform else _when_slow(case, one)
        if not hosts or (one.uniform and not _when_slow(case, one)):
            continue
        said = {anomaly.host: anomaly for anomaly in one.anomalies}
        shown = tuple(said[host] for host in hosts if host in said) or one.anomalies
        first = shown[0]
        culprits = () if one.uniform else tuple(
            CauseLocation(host=host, reason=said[host].text if host in said
                    else f"{host}: as much as {first.host}")
            for host in hosts
        )  # fmt: skip
        found.append(
            Candidate(
                domain=one.domain,
                cause=_CONTENTION[one.domain],
                text=msgspec.structs.replace(one, hosts=hosts, anomalies=shown).text,
                at=min(anomaly.at for anomaly in shown),
                cells=one.cells,
                culprits=culprits,
                anomalies=shown,
                prior=0.85,
            )
        )
    return found


def _when_slow(case: JobCase, one: pressure.Pressure) -> tuple[str, ...]:
    """The hosts whose pressure while steps are slow exceeds its fluctuation while they are fast;
    all of them if steps were never fast."""
    tempo = case.once(pace.find)
    slow = tempo.cells(case.times) & case.steady
    fast = ~tempo.cells(case.times) & case.steady
    if slow.sum() < LEAST_CELLS or fast.sum() < LEAST_CELLS:
        return one.hosts
    names, values = case.view.panel(one.measure).per_host(stats.largest)
    width = max(3, int(pressure.SMOOTH_SECONDS / case.cell))
    kept = []
    for host, row in zip(names, values, strict=True):
        calm = stats.smoothed(row, width)
        usual, noise = stats.middle(calm[fast]), float(stats.sigma(calm[fast]))
        top = float(stats.quantile(calm[fast], 0.95))
        now = stats.middle(calm[slow])
        if host in one.hosts and now > top and now - usual > ABOVE_WANDER * noise:
            kept.append(host)
    return tuple(kept)


def _routing(case: JobCase) -> list[Candidate]:
    return [
        Candidate(
            domain="training",
            cause=curve.kind,
            text=curve.text,
            at=curve.at,
            cells=curve.cells,
            culprits=(),
            anomalies=(curve,),
            prior=0.9 if curve.kind == "moe-shift" else 0.7,
        )
        for curve in case.once(learning.find)
        if curve.kind in {"moe-shift", "loss-nan", "grad-nan"}
    ]
