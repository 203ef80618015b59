"""Why a companion thread is late: the interpreter lock is held, or the process gets no CPU.

The companion sleeps half a second in ``clock_nanosleep``, then needs the interpreter lock (GIL) to
stamp. CPython's waiter sleeps in a futex and wakes every 5 ms to ask the holder to release it, so a
stamp that grows old with the companion in a futex means that the holder does not run Python code:
it is in C, spinning or asleep. Two situations look alike and are distinguished by the run queues: a
companion that waits for a CPU and so cannot even try, and a holder that wants to run Python but
gets no CPU. A companion that was put on a CPU several times since its stamp, and did not stamp,
lacks the lock and not the CPU. A holder that waits for a CPU can release nothing, so that time does
not count: the lock is held if it was kept for a second in which every thread of the process either
slept or ran. On a crowded machine a busy holder takes long to fill that second, and should: an
import compiles a large file in a third of a second, which becomes several where 25 threads share
two CPUs. The kernel adds a wait to a thread's account only when it ends, so a thread that was
runnable in two looks and did not run in between waited, too, and of one that is runnable now only
what it ran is sure.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.model.progress import OVER, STOPPED, InterpreterState
from ray_sentinel.progress.record import STAMP_INTERVAL

_STAMPS_NOT = STOPPED | OVER
STALE_AFTER = 3 * STAMP_INTERVAL
"""Seconds without a stamp (three are missing) after which a cause is looked for."""
STARVED_SHARE = 0.5
"""Share of the time that a starved thread waits for a CPU at least."""
IDLE_SHARE = 0.02
"""Share of a CPU that a starved process gets at most."""
HELD_SECONDS = 0.9
"""Seconds that count after which the lock is held: from when the next stamp was due until three are
missing, less the moments that threads wait for a CPU on an idle machine."""
FEW_RUNS = 2
"""How often a thread may have been put on a CPU and still count as a sleeper, which is woken once,
at the end of its sleep. A waiter for the lock is put on a CPU 200 times a second, unless it is
starved itself."""
CLOCK_SLACK = 1.0
"""Seconds by which a stamp may lie in the future, because it was made while we read."""


class ThreadSample(msgspec.Struct, frozen=True, kw_only=True):
    """One thread at one moment; None if the kernel does not say."""

    at: float
    """When it was taken, in CLOCK_MONOTONIC seconds."""
    state: str
    wchan: str = ""
    cpu_seconds: float | None = None
    delay_seconds: float | None = None
    """Seconds that it has waited for a CPU, without the current wait."""
    switches: int | None = None


def waited(now: ThreadSample, before: ThreadSample) -> float | None:
    """Seconds for which a thread waited for a CPU between two looks; None if unknown."""
    if now.delay_seconds is None or before.delay_seconds is None:
        return None
    ran = (now.cpu_seconds or 0.0) - (before.cpu_seconds or 0.0)
    seconds = now.at - before.at
    stood = now.state == before.state == "R" and now.switches == before.switches
    if stood and ran < IDLE_SHARE * seconds:
        return seconds
    return now.delay_seconds - before.delay_seconds


def not_waited(now: ThreadSample, before: ThreadSample) -> float:
    """Seconds between two looks for which a thread certainly did not wait for a CPU: it slept, or
    it ran. Without schedstat, a thread that sleeps now counts as one that slept."""
    if now.state == "R":
        return (now.cpu_seconds or 0.0) - (before.cpu_seconds or 0.0)
    return now.at - before.at - (waited(now, before) or 0.0)


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """What the run queues did to a process, over the time in which its companion should have
    stamped and did not."""

    waited_share: float
    """Largest share of that time that any thread waited for a CPU, the companion excepted."""
    cpu_share: float
    """CPU time of all threads together, divided by that time; an upper bound."""


def interpreter_state(
    stamp_age: float | None,
    state: str,
    companion: ThreadSample | None,
    before: ThreadSample | None = None,
    scheduling: Scheduling | None = None,
    *,
    runs: int | None = None,
    counted: float = 0.0,
    frozen: bool = False,
) -> InterpreterState:
    """Judge from the age of the stamp (seconds) and from the companion's scheduler state.

    ``state`` is the process's letter, ``before`` the last look at the same companion, ``runs`` how
    often it was put on a CPU since it last stamped, ``counted`` for how many seconds since the next
    stamp was due no thread of the process waited for a CPU. "unknown" wherever two readings are
    possible.
    """
    if stamp_age is None or stamp_age < -CLOCK_SLACK:
        return "unknown"
    if frozen or state[:1] in _STAMPS_NOT:
        return "unknown"
    if stamp_age < STALE_AFTER:
        return "runs"
    if companion is None:
        return "unknown"
    if _lacks_cpu(companion, before, runs) or _holder_lacks_cpu(scheduling):
        return "starved"
    if counted >= HELD_SECONDS and _waits_for_lock(companion, runs):
        return "gil-held"
    return "unknown"


def _lacks_cpu(companion: ThreadSample, before: ThreadSample | None, runs: int | None) -> bool:
    if before is None or companion.at <= before.at:
        return False
    delay = waited(companion, before)
    if delay is None or runs is None:
        # Without schedstat: runnable in two looks, and no stamp in between.
        return companion.state == before.state == "R"
    return runs <= FEW_RUNS and delay / (companion.at - before.at) >= STARVED_SHARE


def _holder_lacks_cpu(scheduling: Scheduling | None) -> bool:
    return (
        scheduling is not None
        and scheduling.waited_share >= STARVED_SHARE
        and scheduling.cpu_share < IDLE_SHARE
    )


def _waits_for_lock(companion: ThreadSample, runs: int | None) -> bool:
    # One that has just come from its sleep has not asked for the lock yet.
    if runs is not None and runs <= FEW_RUNS:
        return False
    if "futex" in companion.wchan:
        return True
    # Caught between two waits of 5 ms, or where wchan is hidden: only a waiter for the lock runs
    # again and again without stamping.
    between = companion.state == "R" or not companion.wchan
    return between and companion.state in ("R", "S") and runs is not None
