"""The parts of a collective hang's diagnosis other than its verdict: chain, facts, table, next
steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ray_sentinel.diagnose import wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.playbooks._hang_context import SETTLE_SECONDS, HangContext
from ray_sentinel.diagnose.stop import ProgressStop
from ray_sentinel.model.diagnosis import (
    CauseLocation,
    Diagnosis,
    Figure,
    FigureTable,
    Link,
    Outcome,
)


def answer(
    case: JobCase,
    context: HangContext,
    outcome: Outcome,
    cause: str,
    confidence: float,
    text: str,
    culprits: tuple[CauseLocation, ...] = (),
    roots: Iterable[Anomaly] = (),
) -> Diagnosis:
    """A diagnosis with ``text`` on ``context``; ``roots`` are what set it off, in any order."""
    stop = context.stop
    roots = sorted(roots, key=lambda anomaly: anomaly.at)
    chain = wording.chain(roots, culprits, text, _stop_link(case, stop), _wait_link(context))
    if not stop.for_good:
        text += " It went on by itself afterwards."
        confidence *= 0.8
    return Diagnosis(
        outcome=outcome,
        cause=cause,
        root_cause=text,
        confidence=confidence,
        weight=(0.9 if stop.for_good else 0.5) * confidence if outcome == "found" else 0.0,
        window=(stop.at, stop.end),
        onset=roots[0].at if roots else stop.at,
        ended_job=outcome == "found" and stop.for_good,
        culprits=culprits,
        chain=chain if outcome == "found" else (),
        evidence=(*(root.fact() for root in roots), *_facts(case, context)),
        tables=(_table(case, context),),
        anomalies=tuple(root.text for root in roots),
        next_steps=_next_steps(cause),
    )


def _stop_link(case: JobCase, stop: ProgressStop) -> Link:
    text = f"progress stops at step {stop.step:.0f}" if stop.step is not None else "work stops"
    key = "train.step" if stop.by == "steps" else "gpu.power"
    panel = case.view.panel(key)
    return Link(role="symptom", text=text, at=stop.at, uncertainty=stop.uncertainty,
                metric=panel.metric, promql=panel.promql())  # fmt: skip


def _wait_link(context: HangContext) -> Link:
    waiting = len(context.of("waiting"))
    text = f"{waiting} of {len(context.states)} GPUs wait busily: high utilisation, idle power"
    return Link(
        role="symptom",
        text=text,
        at=context.stop.at,
        uncertainty=context.stop.uncertainty + SETTLE_SECONDS,
        metric="hw_gpu_power_watts",
        promql="hw_gpu_power_watts",
    )


def _facts(case: JobCase, context: HangContext) -> tuple[Figure, ...]:
    stop, facts = context.stop, []
    until = "the data end" if stop.for_good else "it went on"
    facts.append(
        Figure(
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
        values = np.array([getattr(one, field) for one in context.states])
        if np.isfinite(values).any():
            panel, middle = case.view.panel(key), float(np.nanmedian(values))
            text = (
                f"{panel.quantity.title} during the stop: {np.nanmin(values):.0f} to "
                f"{np.nanmax(values):.0f} {unit}, median {middle:.0f} {unit}"
            )
            facts.append(panel.figure(text, middle, unit, at=stop.end))
    if not case.view.panel("rdma.retx").empty and not context.ports:
        facts.append(Figure(text="no RDMA port had retransmits, errors or a link down before the "
                          "stop", promql=case.promql("rdma.retx")))  # fmt: skip
    return tuple(facts)


def _table(case: JobCase, context: HangContext) -> FigureTable:
    rows = []
    for host in sorted({one.host for one in context.states}):
        own = [one for one in context.states if one.host == host]
        count = {state: sum(one.state == state for one in own) for state in
                 ("working", "computing", "waiting", "resting", "gone", "unclear")}  # fmt: skip
        rows.append((
            host,
            wording.spread([one.utilisation for one in own], "%"),
            wording.spread([one.power for one in own], "W"),
            wording.spread([one.working_power for one in own], "W"),
            ", ".join(f"{number} {state}" for state, number in count.items() if number),
        ))  # fmt: skip
    return FigureTable(
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
        "storage-hang": ("Check the server of the mount and the way to it; "
                         "`ray-sentinel inspect HOST` lists the processes and mounts.",
                         "Restart from the last checkpoint once it answers."),
        "blocked-in-kernel": ("`ray-sentinel inspect HOST` lists the processes and the kernel log.",
                              "What waits in a driver ends with a reboot of the node only."),
        "step-series-gap": ("Read the TensorBoard event files for the steps in the gap.",),
    }.get(cause, ("Take stacks and flight-recorder dumps of all ranks while it hangs: "
                  "`ray-sentinel dump`, `ray-sentinel explain flight-recorder DIR`.",
                  "Restart from the last checkpoint."))  # fmt: skip
