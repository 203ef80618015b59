"""Why a companion thread is late: the interpreter lock is held, or the process gets no CPU.

The companion sleeps half a second in ``clock_nanosleep``, then needs the interpreter lock (GIL) to
stamp. CPython's waiter sleeps in a futex and wakes every 5 ms to ask the holder to release it, so a
stamp that grows old with the companion in a futex means that the holder does not run Python code:
it is in C, spinning or asleep. Two situations look alike and are distinguished by the run queues: a
companion that waits for a CPU and so cannot even try, and a holder that wants to run Python but
gets no CPU. A companion that was put on a CPU several times since its stamp, and did not stamp,
lacks the lock and not the CPU. A holder that spins in C on a crowded machine goes on getting a
little CPU while stamps are missing; one that was throttled got its last before that. The kernel
adds a wait to a thread's account only when it ends, so a thread that was runnable in two looks and
did not run in between waited, too, and one that is runnable now may have waited whenever it did not
run.
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
"""Share of a CPU that a starved process gets at most: with more, the holder of the lock would have
come to the point where it releases it."""
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


def may_have_waited(now: ThreadSample, before: ThreadSample) -> float | None:
    """The most seconds between two looks for which a thread can have waited for a CPU, including a
    wait that is still going on; None if unknown."""
    told = waited(now, before)
    if told is None or now.state != "R":
        return told
    return now.at - before.at - ((now.cpu_seconds or 0.0) - (before.cpu_seconds or 0.0))


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """What the run queues did to a process, over the time in which its companion should have
    stamped and did not."""

    waited_share: float
    """Largest share of that time that any thread waited for a CPU, the companion excepted."""
    cpu_share: float
    """CPU time of all threads together, divided by that time; an upper bound."""
    most_waited_share: float = 0.0
    """``waited_share`` with the waits that are not over, which the kernel does not report yet."""
    fresh: bool = False
    """Whether that time began before enough stamps were missing. On a crowded machine the companion
    may have stamped late by itself, and the process may have lost its CPU since."""


def interpreter_state(
    stamp_age: float | None,
    state: str,
    companion: ThreadSample | None,
    before: ThreadSample | None = None,
    scheduling: Scheduling | None = None,
    *,
    runs: int | None = None,
    seen_held: bool = False,
    frozen: bool = False,
) -> InterpreterState:
    """Judge from the age of the stamp (seconds) and from the companion's scheduler state.

    ``state`` is the process's letter, ``before`` the last look at the same companion, ``runs`` how
    often it was put on a CPU since it last stamped, ``seen_held`` whether the lock was seen held
    since then: what was proven stays proven. "unknown" wherever two readings are possible.
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
    if _holder_may_lack_cpu(scheduling) and not seen_held:
        # It may have lost its CPU between two looks: the next one will show.
        return "unknown"
    if _waits_for_lock(companion, runs):
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


def _holder_may_lack_cpu(scheduling: Scheduling | None) -> bool:
    return (
        scheduling is not None
        and max(scheduling.waited_share, scheduling.most_waited_share) >= STARVED_SHARE
        and scheduling.fresh
    )


def _waits_for_lock(companion: ThreadSample, runs: int | None) -> bool:
    if "futex" in companion.wchan:
        return True
    # Caught between two waits of 5 ms, or where wchan is hidden: only a waiter for the lock runs
    # again and again without stamping.
    between = companion.state == "R" or not companion.wchan
    return between and companion.state in ("R", "S") and runs is not None and runs > FEW_RUNS
