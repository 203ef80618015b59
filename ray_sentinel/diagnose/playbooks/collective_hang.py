"""Collective hang: all wait in a collective for somebody, or for each other.

GPUs that poll inside a collective show high utilisation at nearly idle power. Who does not poll is
the news: a GPU that still works is the straggler that the others wait for, one that rests never
entered, a host that is gone has died. A network fault just before the stop is the trigger.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose import wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.detect import faults, levels, lost, memory, rdma
from ray_sentinel.diagnose.detect.levels import GpuState
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.stop import Stop
from ray_sentinel.model.diagnosis import Culprit, Diagnosis, Fact, Link, Outcome, Table

NAME = "collective-hang"
ANALYSIS = "hang"
ALIASES: tuple[str, ...] = ("nccl-hang", "rccl-hang", "1")
TITLE = "Collective hang"

MINORITY = 0.34
"""Culprits are a minority of the GPUs: where more differ, nobody can be singled out."""
STILL_WORKING = 0.9
TRIGGER_SECONDS = 600.0
"""A trigger lies at most so long before the stop ..."""
SETTLE_SECONDS = 30.0
"""... and GPUs need so long after it to come down."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen during the stop."""

    stop: Stop
    states: tuple[GpuState, ...]
    dead: tuple[lost.Lost, ...]
    ports: tuple[rdma.PortTrouble, ...]
    errors: tuple[faults.Fault, ...]
    off_bus: tuple[lost.Lost, ...]

    def share(self, state: str) -> float:
        """The share of the GPUs that are still there and in this state."""
        there = [one for one in self.states if one.state != "gone"]
        return sum(one.state == state for one in there) / len(there) if there else 0.0

    def of(self, state: str) -> list[GpuState]:
        """The GPUs in this state."""
        return [one for one in self.states if one.state == state]


def applies(case: Case) -> float:
    """It stopped while it was being watched."""
    stop = case.once(stops.find)
    if stop is None:
        return 0.0
    return 1.0 if stop.for_good else 0.4


def run(case: Case) -> Diagnosis:
    """Which kind of hang it is, what set it off, and who."""
    stop = case.once(stops.find)
    if stop is None:
        return _not_stopped(case)
    scene = look(case, stop)
    for judge in (_still_working, _killed, _device_fault, _node_death, _network, _straggler,
                  _absent, _busy_wait, _resting):  # fmt: skip
        if (diagnosis := judge(case, scene)) is not None:
            return diagnosis
    return _answer(case, scene, "unknown", "unknown", 0.3,
                   "The job stopped, but neither power nor utilisation of its GPUs is known: "
                   "a hang cannot be told from a job that ended.")  # fmt: skip


def look(case: Case, stop: Stop) -> Scene:
    """GPU states during the stop, and what went wrong just before it."""
    settled = min(stop.at + SETTLE_SECONDS + 2 * case.cell, (stop.at + stop.end) / 2)
    late = stop.latest + 3 * case.cell
    early = stop.at - TRIGGER_SECONDS - stop.uncertainty
    return Scene(
        stop=stop,
        states=levels.states(case, settled, stop.end),
        dead=tuple(one for one in case.once(lost.hosts) if early <= one.at),
        ports=tuple(
            port
            for port in case.once(rdma.find)
            if port.at <= late and port.cells[(case.times >= early) & (case.times <= late)].any()
        ),
        errors=tuple(
            fault
            for fault in case.once(faults.find)
            if fault.severity == "fatal" and early - TRIGGER_SECONDS <= fault.at <= late
        ),
        off_bus=tuple(one for one in case.once(lost.gpus) if early <= one.at <= late),
    )


def _not_stopped(case: Case) -> Diagnosis:
    if not case.line.trained:
        text = "No step was ever done and the GPUs never worked: the job hung before training, or "
        text += "its steps are not recorded."
        return wording.plain(case, NAME, ANALYSIS, "unknown", "never-trained", text, 0.3)
    text = "Not a hang: steps went on to the end of the data."
    return wording.plain(case, NAME, ANALYSIS, "not-this", "none", text, 0.9)


def _still_working(case: Case, scene: Scene) -> Diagnosis | None:
    if scene.share("working") < STILL_WORKING:
        return None
    text = (
        f"Not a hang: after the last recorded step {scene.share('working'):.0%} of the GPUs kept "
        "drawing the power of training. The step series has a gap; the event files tell the steps."
    )
    return _answer(case, scene, "not-this", "step-series-gap", 0.9, text)


def _node_death(case: Case, scene: Scene) -> Diagnosis | None:
    dead = list(scene.dead)
    hosts = {one.host for one in dead}
    silent = _silent_hosts(scene) - hosts
    everyone = {one.host for one in scene.states} | hosts
    if not (hosts or silent) or len(hosts | silent) > MINORITY * max(len(everyone), 3):
        return None
    first = min((one.at for one in dead), default=scene.stop.at)
    named = [one for one in dead if one.at <= first + 2 * case.cell] if dead else []
    guilty = sorted({one.host for one in named} or silent)
    errors = [fault for fault in case.once(faults.find) if fault.host in guilty]
    why = f", after {errors[0].anomaly.text}" if errors else ""
    text = f"Node death: {listed(guilty)} went away, and the other nodes hung waiting for it{why}."
    culprits = tuple(
        Culprit(host=host, reason="its series end; the others wait for it") for host in guilty
    )
    roots = [fault.anomaly for fault in errors[:1]] + [one.anomaly for one in named]
    return _answer(case, scene, "found", "node-lost", 0.9, text, culprits, roots)


def _silent_hosts(scene: Scene) -> set[str]:
    hosts = {one.host for one in scene.states}
    return {
        host
        for host in hosts
        if all(one.state == "gone" for one in scene.states if one.host == host)
    }


def _killed(case: Case, scene: Scene) -> Diagnosis | None:
    """The kernel killed a rank just before the stop: what follows is its echo."""
    near = {
        host: kill
        for host, kill in case.once(memory.kills).items()
        if scene.stop.at - TRIGGER_SECONDS <= kill[1] <= scene.stop.latest + 3 * case.cell
    }
    if not near:
        return None
    text = (
        f"Not a hang of its own: processes on {listed(sorted(near))} were killed for lack of "
        "memory, and the others waited for them. See the playbook host-oom."
    )
    roots = [kill[2] for kill in near.values()]
    return _answer(case, scene, "not-this", "oom", 0.85, text, (), roots)


def _device_fault(case: Case, scene: Scene) -> Diagnosis | None:
    """A device failed just before the stop: the playbook for hardware answers for it."""
    found = [fault.anomaly for fault in scene.errors] + [one.anomaly for one in scene.off_bus]
    if not found:
        return None
    first = min(found, key=lambda anomaly: anomaly.at)
    same = [anomaly for anomaly in found if anomaly.at <= first.at + 2 * case.cell]
    culprits = {
        (one.host, one.gpu): Culprit(host=one.host, gpu=one.gpu, reason=one.text) for one in same
    }
    text = (
        f"Not a hang of its own: a device fault stopped the job ({first.text}), and the other GPUs "
        "then waited for it. See the playbook node-hardware-failure."
    )
    return _answer(case, scene, "not-this", "device-fault", 0.85, text, tuple(culprits.values()),
                   same)  # fmt: skip


def _network(case: Case, scene: Scene) -> Diagnosis | None:
    if not scene.ports or scene.share("waiting") + scene.share("unclear") < 0.5:
        return None
    best = min(port.priority for port in scene.ports)
    top = max(port.peak for port in scene.ports)
    guilty = [p for p in scene.ports if p.priority == best and p.peak >= 0.2 * top * (best > 1)]
    culprits = tuple(
        Culprit(
            host=port.host,
            device=port.device,
            port=port.port,
            reason="; ".join(anomaly.text for anomaly in port.anomalies),
        )
        for port in guilty
    )
    where = listed([f"{port.unit} of {port.host}" for port in guilty])
    text = (
        f"Network-triggered hang: RDMA trouble on {where} began before progress stopped; a "
        "collective stalled on that link, and all GPUs then waited busily."
    )
    roots = [anomaly for port in guilty for anomaly in port.anomalies]
    return _answer(case, scene, "found", "rdma-link", 0.88, text, culprits, roots)


def _straggler(case: Case, scene: Scene) -> Diagnosis | None:
    working, waiting = scene.of("working"), scene.of("waiting") + scene.of("unclear")
    if not working or len(working) > len(waiting):
        return None
    hosts = sorted({one.host for one in working})
    culprits = tuple(
        Culprit(host=one.host, gpu=one.gpu,
                reason=f"still draws {one.power:.0f} W while the others wait")
        for one in working
    )  # fmt: skip
    text = (
        f"A straggler: the GPUs of {listed(hosts)} still work while all others wait for them in a "
        "collective."
    )
    return _answer(case, scene, "found", "straggler", 0.8, text, culprits)


def _absent(case: Case, scene: Scene) -> Diagnosis | None:
    resting, waiting = scene.of("resting"), scene.of("waiting")
    if not resting or not waiting:
        return None
    if len(resting) > MINORITY * (len(resting) + len(waiting)):
        return None
    hosts = sorted({one.host for one in resting})
    culprits = tuple(
        Culprit(host=one.host, gpu=one.gpu,
                reason=f"rests ({one.utilisation:.0f} % utilisation) while the others wait")
        for one in resting
    )  # fmt: skip
    text = (
        f"The GPUs of {listed(hosts)} never entered the collective in which all others wait "
        "busily: their ranks are held up on the host side."
    )
    return _answer(case, scene, "found", "rank-absent", 0.75, text, culprits)


def _busy_wait(case: Case, scene: Scene) -> Diagnosis | None:
    waiting = scene.of("waiting")
    if not waiting:
        return None
    partial = len(waiting) < 0.9 * len([one for one in scene.states if one.state != "gone"])
    how = (
        f"only {len(waiting)} of {len(scene.states)} GPUs entered the collective"
        if partial
        else "all GPUs entered the collective"
    )
    power = float(np.median([one.power for one in waiting]))
    work = float(np.median([one.working_power for one in waiting]))
    text = (
        f"Collective busy-wait hang: {how} and poll in it at {power:.0f} W (training: {work:.0f} "
        "W) with high utilisation; the network was clean. Series cannot tell which rank is "
        "missing: stacks and the flight recorder can."
    )
    cause = "partial-busy-wait" if partial else "busy-wait"
    return _answer(case, scene, "found", cause, 0.85, text)


def _resting(case: Case, scene: Scene) -> Diagnosis | None:
    if scene.share("resting") < 0.5 and scene.share("unclear") < 0.5:
        return None
    if scene.share("unclear") >= 0.5:
        text = (
            "The job stopped and its GPUs came down to idle power; utilisation is not recorded, so "
            "a busy-wait cannot be told from a job that ended."
        )
        return _answer(case, scene, "unknown", "stopped", 0.4, text)
    text = (
        "Not a collective hang: after the last step the GPUs rest, with no kernel on them. The job "
        "ended, was killed, or all ranks are held up on the host side."
    )
    return _answer(case, scene, "not-this", "gpus-idle", 0.7, text)


def _answer(
    case: Case,
    scene: Scene,
    outcome: Outcome,
    cause: str,
    confidence: float,
    text: str,
    culprits: tuple[Culprit, ...] = (),
    roots: list[Anomaly] | None = None,
) -> Diagnosis:
    stop = scene.stop
    roots = sorted(roots or [], key=lambda anomaly: anomaly.at)
    chain = wording.chain(roots, culprits, text, _stop_link(case, stop), _wait_link(scene))
    if not stop.for_good:
        text += " It went on by itself afterwards."
        confidence *= 0.8
    return Diagnosis(
        analysis=ANALYSIS,
        playbook=NAME,
        outcome=outcome,
        cause=cause,
        root_cause=text,
        confidence=confidence,
        weight=(0.9 if stop.for_good else 0.5) * confidence if outcome == "found" else 0.0,
        window=(stop.at, stop.end),
        onset=roots[0].at if roots else stop.at,
        culprits=culprits,
        chain=chain if outcome == "found" else (),
        evidence=(*(root.fact() for root in roots), *_facts(case, scene)),
        tables=(_table(case, scene),),
        anomalies=tuple(root.text for root in roots),
        next_steps=_next_steps(cause),
    )


def _stop_link(case: Case, stop: Stop) -> Link:
    text = f"progress stops at step {stop.step:.0f}" if stop.step is not None else "work stops"
    key = "train.step" if stop.by == "steps" else "gpu.power"
    panel = case.view.panel(key)
    return Link(role="symptom", text=text, at=stop.at, uncertainty=stop.uncertainty,
                metric=panel.metric, promql=panel.promql())  # fmt: skip


def _wait_link(scene: Scene) -> Link:
    waiting = len(scene.of("waiting"))
    text = f"{waiting} of {len(scene.states)} GPUs wait busily: high utilisation, idle power"
    return Link(
        role="symptom",
        text=text,
        at=scene.stop.at,
        uncertainty=scene.stop.uncertainty + SETTLE_SECONDS,
        metric="hw_gpu_power_watts",
        promql="hw_gpu_power_watts",
    )


def _facts(case: Case, scene: Scene) -> tuple[Fact, ...]:
    stop, facts = scene.stop, []
    until = "the data end" if stop.for_good else "it went on"
    facts.append(
        Fact(
            text=f"no step for {stop.seconds:.0f} s until {until}; a step usually took "
            f"{case.line.step_seconds:.1f} s",
            metric=case.line.metric,
            promql=case.promql("train.step"),
            at=stop.at,
            value=stop.seconds,
            unit="s",
        )
    )
    for key, field, unit in (("gpu.power", "power", "W"), ("gpu.util", "utilisation", "%")):
        values = np.array([getattr(one, field) for one in scene.states])
        if np.isfinite(values).any():
            facts.append(
                Fact(
                    text=f"{case.view.panel(key).quantity.title} during the stop: "
                    f"{np.nanmin(values):.0f} to {np.nanmax(values):.0f} {unit}, "
                    f"median {np.nanmedian(values):.0f} {unit}",
                    metric=case.view.panel(key).metric,
                    promql=case.promql(key),
                    value=float(np.nanmedian(values)),
                    unit=unit,
                    at=stop.end,
                )
            )
    if not case.view.panel("rdma.retx").empty and not scene.ports:
        facts.append(Fact(text="no RDMA port had retransmits, errors or a link down before the "
                          "stop", promql=case.promql("rdma.retx")))  # fmt: skip
    return tuple(facts)


def _table(case: Case, scene: Scene) -> Table:
    rows = []
    for host in sorted({one.host for one in scene.states}):
        own = [one for one in scene.states if one.host == host]
        count = {state: sum(one.state == state for one in own) for state in
                 ("working", "waiting", "resting", "gone", "unclear")}  # fmt: skip
        rows.append((
            host,
            wording.spread([one.utilisation for one in own], "%"),
            wording.spread([one.power for one in own], "W"),
            wording.spread([one.working_power for one in own], "W"),
            ", ".join(f"{number} {state}" for state, number in count.items() if number),
        ))  # fmt: skip
    return Table(
        title="GPUs during the stop",
        columns=("Host", "Utilisation", "Power", "Power at work", "Interpretation"),
        rows=tuple(rows),
        promql=case.promql("gpu.power"),
    )


def _next_steps(cause: str) -> tuple[str, ...]:
    return {
        "node-lost": ("Drain the node and read its kernel log and BMC events.",
                      "Restart from the last checkpoint without it."),
        "device-fault": ("Drain the node; have the GPU tested or replaced.",),
        "oom": ("Run the playbook host-oom.",),
        "rdma-link": ("Check cable, transceiver and switch port of the named device.",
                      "Restart from the last checkpoint without the node."),
        "straggler": ("Take stacks of the ranks on the named GPUs: what do they still compute?",
                      "Check that host for CPU contention and slow input."),
        "rank-absent": ("Take stacks of the ranks on the named GPUs: what holds them on the host?",
                        "Check input storage and D-state processes there."),
        "step-series-gap": ("Read the TensorBoard event files for the steps in the gap.",),
    }.get(cause, ("Take stacks and flight-recorder dumps of all ranks while it hangs: "
                  "`ray-sentinel dump`, `ray-sentinel explain flight-recorder DIR`.",
                  "Restart from the last checkpoint."))  # fmt: skip
