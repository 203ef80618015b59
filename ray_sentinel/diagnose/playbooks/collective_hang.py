"""Collective hang: all wait in a collective for one member, or for each other.

GPUs that poll inside a collective show high utilisation at nearly idle power. The GPUs that do not
poll matter: one that still computes is the straggler that the others wait for, one that is idle
never entered, a host that is gone has died. A network fault just before the stop is the trigger.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose import wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.detect import faults, memory
from ray_sentinel.diagnose.detect.levels import StalledGpu
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.playbooks._hang_answer import answer
from ray_sentinel.diagnose.playbooks._hang_context import TRIGGER_SECONDS, HangContext, hang_context
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis

NAME = "collective-hang"
ANALYSIS = "hang"
ALIASES: tuple[str, ...] = ("nccl-hang", "rccl-hang", "1")
TITLE = "Collective hang"
SLOWING: frozenset[str] = frozenset()

WEAK = 0.25
"""Share of the worst host's rate below which a host is a bystander."""
MINORITY = 0.34
"""Largest share of the GPUs or hosts that may be culprits: where more differ, nobody can be singled
out."""
MOST_ALIVE = 0.9
"""Share of the ranks that must be alive for the job to stand still and not to have ended."""
STANDING = "waiting-outside"
"""The cause where all ranks are alive and none uses its GPU."""
STILL_WORKING = 0.9
"""Share of the GPUs that must still draw the power of training for the stop not to be a hang."""


def applies(case: JobCase) -> float:
    """Whether the job stopped while it was being watched."""
    stop = case.once(stops.find)
    if stop is None:
        return 0.0
    return 1.0 if stop.for_good else 0.4


def run(case: JobCase) -> Diagnosis:
    """Which kind of hang it is, what set it off, and who is responsible."""
    stop = case.once(stops.find)
    if stop is None:
        return _not_stopped(case)
    context = hang_context(case, stop)
    for judge in (_completed, _still_working, _killed, _device_fault, _node_death, _network, _tcp,
                  _straggler, _absent, _computing, _busy_wait, _blocked, _resting):  # fmt: skip
        if (diagnosis := judge(case, context)) is not None:
            return diagnosis
    return answer(case, context, "unknown", "unknown", 0.3,
                  "The job stopped, but neither power nor utilisation of its GPUs is known: "
                  "a hang cannot be told from a job that ended.")  # fmt: skip


def _not_stopped(case: JobCase) -> Diagnosis:
    if not case.line.trained:
        text = "No step was ever done and the GPUs never worked: the job hung before training, or "
        text += "its steps are not recorded."
        return wording.plain("unknown", "never-trained", text, 0.3)
    text = "Not a hang: steps went on to the end of the data."
    return wording.plain("not-this", "none", text, 0.9)


def _completed(case: JobCase, context: HangContext) -> Diagnosis | None:
    """The answer for a completed job: nobody waits any more."""
    if case.logs.ended != "completed" or not context.stop.for_good:
        return None
    text = "Not a hang: by its log the job was completed when its steps ended."
    return answer(case, context, "not-this", "completed", 0.9, text)


def _still_working(case: JobCase, context: HangContext) -> Diagnosis | None:
    if context.share("working") < STILL_WORKING:
        return None
    text = (
        f"Not a hang: after the last recorded step {context.share('working'):.0%} of the GPUs kept "
        "drawing the power of training. The step series has a gap; the event files tell the steps."
    )
    return answer(case, context, "not-this", "step-series-gap", 0.9, text)


def _node_death(case: JobCase, context: HangContext) -> Diagnosis | None:
    dead = list(context.dead)
    hosts = {one.host for one in dead}
    silent = context.silent_hosts() - hosts
    everyone = {one.host for one in context.states} | hosts
    if not (hosts or silent) or len(hosts | silent) > MINORITY * max(len(everyone), 3):
        return None
    first = min((one.at for one in dead), default=context.stop.at)
    named = [one for one in dead if one.at <= first + 2 * case.cell] if dead else []
    guilty = sorted({one.host for one in named} or silent)
    errors = [fault for fault in case.once(faults.find) if fault.host in guilty]
    why = f", after {errors[0].text}" if errors else ""
    text = f"Node death: {listed(guilty)} went away, and the other nodes hung waiting for it{why}."
    culprits = tuple(
        CauseLocation(host=host, reason="its series end; the others wait for it") for host in guilty
    )
    roots = (*errors[:1], *named)
    return answer(case, context, "found", "node-lost", 0.9, text, culprits, roots)


def _killed(case: JobCase, context: HangContext) -> Diagnosis | None:
    """The kernel killed a rank just before the stop: what follows is its echo."""
    near = {
        host: kill
        for host, kill in case.once(memory.kills).items()
        if context.stop.at - TRIGGER_SECONDS <= kill.at <= context.stop.latest + 3 * case.cell
    }
    if not near:
        return None
    text = (
        f"Not a hang of its own: processes on {listed(sorted(near))} were killed for lack of "
        "memory, and the others waited for them. See the playbook host-oom."
    )
    return answer(case, context, "not-this", "oom", 0.85, text, (), near.values())


def _device_fault(case: JobCase, context: HangContext) -> Diagnosis | None:
    """A device failed just before the stop: the playbook for hardware answers for it."""
    found: list[Anomaly] = [*context.errors, *context.off_bus]
    if not found:
        return None
    first = min(found, key=lambda anomaly: anomaly.at)
    same = [anomaly for anomaly in found if anomaly.at <= first.at + 2 * case.cell]
    culprits = wording.culprits_of(same)
    text = (
        f"Not a hang of its own: a device fault stopped the job ({first.text}), and the other GPUs "
        "then waited for it. See the playbook node-hardware-failure."
    )
    return answer(case, context, "not-this", "device-fault", 0.85, text, culprits, same)


def _network(case: JobCase, context: HangContext) -> Diagnosis | None:
    if not context.ports or context.share("waiting") + context.share("unclear") < 0.5:
        return None
    best = min(port.priority for port in context.ports)
    top = max(port.peak for port in context.ports)
    guilty = [p for p in context.ports if p.priority == best and p.peak >= 0.2 * top * (best > 1)]
    culprits = tuple(port.culprit for port in guilty)
    where = listed([f"{port.unit} of {port.host}" for port in guilty])
    text = (
        f"Network-triggered hang: RDMA trouble on {where} began before progress stopped; a "
        "collective stalled on that link, and all GPUs then waited busily."
    )
    roots = [anomaly for port in guilty for anomaly in port.anomalies]
    return answer(case, context, "found", "rdma-link", 0.88, text, culprits, roots)


def _tcp(case: JobCase, context: HangContext) -> Diagnosis | None:
    """Collectives run over TCP, which was in trouble when they stopped."""
    if not context.tcp or context.share("waiting") + context.share("unclear") < 0.5:
        return None
    kind = context.tcp[0].kind
    guilty = [
        one for one in context.tcp if one.kind == kind and one.size >= WEAK * context.tcp[0].size
    ]
    hosts = sorted({one.host for one in guilty})
    shared = everywhere(len(hosts), len(case.hosts))
    text = (
        f"Network-triggered hang: {guilty[0].text} began before progress stopped, and the "
        "collectives run over TCP: one stalled there, and all GPUs then waited busily."
    )
    culprits = () if shared else tuple(one.culprit for one in guilty)
    return answer(case, context, "found", kind, 0.75, text, culprits, guilty)


def _gpus(found: list[StalledGpu], why: Callable[[StalledGpu], str]) -> tuple[CauseLocation, ...]:
    return tuple(CauseLocation(host=one.host, gpu=one.gpu, reason=why(one)) for one in found)


def _straggler(case: JobCase, context: HangContext) -> Diagnosis | None:
    working, waiting = context.of("working"), context.of("waiting") + context.of("unclear")
    if not working or len(working) > len(waiting):
        return None
    culprits = _gpus(working, lambda one: f"still draws {one.power:.0f} W while the others wait")
    text = (
        f"A straggler: all others wait in a collective for {_where(working, context)}, still at "
        "work."
    )
    return answer(case, context, "found", "straggler", 0.8, text, culprits)


def _where(found: list[StalledGpu], context: HangContext) -> str:
    """The cards, or the hosts all of whose cards they are."""
    count = {host: sum(one.host == host for one in context.states) for host in
             {one.host for one in found}}  # fmt: skip
    hosts = [host for host in sorted(count)
             if sum(one.host == host for one in found) == count[host]]  # fmt: skip
    if len(hosts) == len(count):
        return f"the GPUs of {listed(hosts)}"
    return wording.cards((one.host, one.gpu) for one in found)


def _held_up(case: JobCase, stop: stops.ProgressStop, hosts: list[str]) -> str:
    """What is known of the ranks there."""
    panel = case.view.panel("train.alive").pick(lambda row: row.host in hosts)
    inside = (case.times >= stop.at) & (case.times <= stop.end)
    ended = [row.unit for row, alive in zip(panel.rows, panel.values[:, inside], strict=True)
             if alive.size and np.nanmin(np.nan_to_num(alive, nan=1.0)) < 0.5]  # fmt: skip
    if not ended:
        return "their ranks are held up on the host side"
    return f"rank {ended[0]} has ended" if len(ended) == 1 else f"ranks {listed(ended)} have ended"


def _absent(case: JobCase, context: HangContext) -> Diagnosis | None:
    resting, waiting = context.of("resting"), context.of("waiting")
    if not resting or not waiting:
        return None
    if len(resting) > MINORITY * (len(resting) + len(waiting)):
        return None
    hosts = sorted({one.host for one in resting})
    where = _where(resting, context)
    culprits = _gpus(
        resting, lambda one: f"rests ({one.utilisation:.0f} % utilisation) while the others wait"
    )
    text = (
        f"{where[0].upper()}{where[1:]} never entered the collective in which all others wait "
        f"busily: {_held_up(case, context.stop, hosts)}"
    )
    held = [one for one in context.held if one.host in hosts]
    text += f" ({listed([anomaly.text for anomaly in held], 3)})." if held else "."
    return answer(case, context, "found", "rank-absent", 0.75, text, culprits, held)


def _computing(case: JobCase, context: HangContext) -> Diagnosis | None:
    """The GPUs do something other than training: an evaluation or a generation."""
    computing = context.of("computing")
    if len(computing) <= len(context.of("waiting")):
        return None
    power = float(np.median([one.power for one in computing]))
    text = (
        f"Not a hang: while no step was recorded, {len(computing)} of {len(context.states)} GPUs "
        f"went on computing at about {power:.0f} W, as in an evaluation or a generation: what "
        "they draw goes up and down, while polling in a collective draws the same all the time."
    )
    return answer(case, context, "not-this", "other-work", 0.7, text)


def _busy_wait(case: JobCase, context: HangContext) -> Diagnosis | None:
    waiting = context.of("waiting")
    if not waiting:
        return None
    # A GPU whose sensor is only noisier than the others' is polling like them.
    entered = waiting + context.of("computing")
    partial = len(entered) < 0.9 * len([one for one in context.states if one.state != "gone"])
    seen = [one for one in context.states if one.state != "gone"]
    how = (
        f"only {len(entered)} of {len(seen)} GPUs entered the collective"
        if partial
        else "all GPUs entered the collective"
    )
    if len(seen) < len(context.states):
        how += f" ({len(context.states) - len(seen)} more were not seen)"
    power = float(np.median([one.power for one in waiting]))
    work = float(np.median([one.working_power for one in waiting]))
    text = (
        f"Collective busy-wait hang: {how} and poll in it at {power:.0f} W (training: {work:.0f} "
        f"W) with high utilisation; {_network_seen(case, context)}. Series cannot tell which rank "
        "is missing: stacks and the flight recorder can."
    )
    cause = "partial-busy-wait" if partial else "busy-wait"
    return answer(case, context, "found", cause, 0.85, text)


def _network_seen(case: JobCase, context: HangContext) -> str:
    """What the series show about the network."""
    looked = [key for key in ("rdma.retx", "rdma.ack_timeout", "rdma.port")
              if not case.view.panel(key).empty]  # fmt: skip
    if context.ports:
        return (
            f"{listed([f'{port.unit} of {port.host}' for port in context.ports])} had trouble too"
        )
    if context.tcp:
        return context.tcp[0].text
    if len(looked) == 3:
        return "its RDMA ports were clean"
    if looked:
        return "what is recorded of its RDMA ports was clean"
    return "nothing is recorded of its RDMA ports"


def _blocked(case: JobCase, context: HangContext) -> Diagnosis | None:
    """The GPUs rest, and processes wait in the kernel: the ranks are there and cannot go on."""
    held = context.held
    if not held or context.share("resting") < 0.5:
        return None
    hosts = sorted({one.host for one in held})
    shared = everywhere(len(hosts), len(case.hosts))
    awaited = {one.awaited for one in held}
    what = next(iter(awaited)) if len(awaited) == 1 else "unknown"
    who = {"driver": "a device's driver", "unknown": "a mount or a driver"}.get(what, f"the {what}")
    text = (
        f"The job stands still and its GPUs rest: on {listed(hosts)} processes wait in the kernel "
        f"for {who} ({held[0].text})."
    )
    culprits = () if shared else wording.culprits_of(held)
    cause = "storage-hang" if what == "storage" else "blocked-in-kernel"
    return answer(case, context, "found", cause, 0.8, text, culprits, held)


def _ranks_alive(case: JobCase, stop: stops.ProgressStop) -> tuple[int, int]:
    """How many ranks were alive during most of the stop, and of how many that is known."""
    panel = case.view.panel("train.alive")
    inside = (case.times > stop.at) & (case.times <= stop.end)
    states = np.nan_to_num(panel.values[:, inside])
    alive = (states > 0.5).mean(axis=1) > 0.5 if inside.any() else np.empty(0)
    return int(alive.sum()), len(panel.rows) if inside.any() else 0


def _resting(case: JobCase, context: HangContext) -> Diagnosis | None:
    if context.share("resting") < 0.5 and context.share("unclear") < 0.5:
        return None
    if context.share("unclear") >= 0.5:
        known = [one for one in context.of("unclear") if np.isfinite(one.utilisation)]
        text = (
            "The job stopped while its GPUs show high utilisation; their power is not recorded, so "
            "a busy-wait in a collective, the likeliest, cannot be told from other work."
            if len(known) > len(context.states) / 2
            else "The job stopped and its GPUs came down to idle power; utilisation is not "
            "recorded, so a busy-wait cannot be told from a job that ended."
        )
        return answer(case, context, "unknown", "stopped", 0.4, text)
    alive, ranks = _ranks_alive(case, context.stop)
    if ranks and alive >= MOST_ALIVE * ranks:
        text = (
            f"The job stands still: no step ends and its GPUs rest, while {alive} of {ranks} ranks "
            "are alive. They wait for something outside of the GPUs (a service, data, storage); "
            "their stacks show for what: `ray-sentinel stacks`."
        )
        return answer(case, context, "unknown", STANDING, 0.6, text)
    text = (
        "Not a collective hang: after the last step the GPUs rest, with no kernel on them. The job "
        "ended, was killed, or all ranks are held up on the host side."
    )
    return answer(case, context, "not-this", "gpus-idle", 0.7, text)
