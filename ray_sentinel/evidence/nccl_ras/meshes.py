"""Several polls put together: what each communicator looked like last, and before.

A process knows only the processes that it shares a communicator with, and theirs. A job whose
communicators fall into islands has an island's view in every answer, and the polls of one moment
from several nodes are one look. So polls are compared by communicator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from ray_sentinel.evidence.movement import Movement, compared
from ray_sentinel.evidence.nccl_ras.poll import Communicator, Member, Poll, RasProcess


class CommunicatorView:
    """A communicator in the last poll that has it, and in the first (None if it was seen once).

    ``apart``: seconds between the two, if the answers have their time.
    """

    def __init__(
        self, last: Communicator, first: Communicator | None = None, apart: float | None = None
    ) -> None:
        self.last = last
        self.first = first
        self.apart = apart
        self._old = {member.rank: member for member in first.members} if first else {}

    def before(self, rank: int) -> Member | None:
        """The member as it was in the first poll."""
        return self._old.get(rank)

    def movement(self, member: Member) -> Movement:
        """Whether a rank has launched anything between the polls."""
        old = self._old.get(member.rank)
        shared = old.counts.keys() & member.counts.keys() if old is not None else ()
        if old is None or not shared:
            return "unknown"
        return compared([[one.counts[name] for name in shared] for one in (old, member)])


def newest(polls: Sequence[Poll]) -> list[Poll]:
    """The polls after which there is none of the same job: none that knows a process of it, or that
    names no process."""
    known = [_processes(poll) for poll in polls]
    return [
        poll
        for index, poll in enumerate(polls)
        if all(known[index] and later and not known[index] & later for later in known[index + 1 :])
    ]


def process_count(polls: Iterable[Poll]) -> int:
    """Processes in the job, as far as polls show them; otherwise a rank counts as one."""
    told, seen, sizes = 0, set[tuple[str, int]](), [0]
    for poll in polls:
        told += poll.processes or 0
        seen |= _processes(poll)
        sizes += [found.size for found in poll.communicators]
        sizes += [row.size for row in poll.rows]
    return max(told, len(seen), *sizes)


def _processes(poll: Poll) -> set[tuple[str, int]]:
    """Host and pid of every process that a poll names."""
    places = (member.place for found in poll.communicators for member in found.members)
    gone = {(process.host, process.pid) for process in (*poll.dead, *poll.missing)}
    return gone | {place[:2] for place in places if place is not None}


def each_once(processes: Iterable[RasProcess]) -> list[RasProcess]:
    """Processes without repetitions; of each the last description."""
    return list({(process.host, process.pid): process for process in processes}.values())


def communicator_views(polls: Sequence[Poll]) -> list[CommunicatorView]:
    """All communicators that still exist, from polls in the order of their time."""
    seen: dict[str, list[tuple[int, Communicator]]] = {}
    for index, poll in enumerate(polls):
        for communicator in poll.communicators:
            seen.setdefault(communicator.key, []).append((index, communicator))
    result = []
    for found in _merged(seen):
        index, last = found[-1]
        if _gone(last, polls[index + 1 :]):
            continue
        begun, first = found[0]
        once = begun == index
        if once:
            result.append(CommunicatorView(last))
        else:
            result.append(CommunicatorView(last, first, _apart(polls[begun], polls[index])))
    return result


def _merged(
    seen: dict[str, list[tuple[int, Communicator]]],
) -> list[list[tuple[int, Communicator]]]:
    """Entries of one communicator put together: text has the first hash only, and such an entry is
    the one JSON entry with that hash."""
    result: dict[str, list[tuple[int, Communicator]]] = {}
    for key, found in seen.items():
        name = found[0][1].hash
        full = [other for other in seen if other != key and other.startswith(f"{name}/")]
        target = full[0] if "/" not in key and name and len(full) == 1 else key
        result[target] = sorted([*result.get(target, []), *found], key=lambda pair: pair[0])
    return list(result.values())


def _gone(communicator: Communicator, later: Sequence[Poll]) -> bool:
    """Whether a later poll knows its processes, but not the communicator: it was torn down, or is
    well again.

    The text output names a communicator only while something is wrong with it.
    """
    places = {member.place for member in communicator.members} - {None}
    for poll in later:
        if poll.text:
            if poll.rows or poll.communicators:
                return True
            continue
        known = {member.place for found in poll.communicators for member in found.members}
        if places & known:
            return True
    return False


def _apart(first: Poll, last: Poll) -> float | None:
    try:
        begun, ended = (_time(poll.timestamp) for poll in (first, last))
    except ValueError:
        return None
    return (ended - begun).total_seconds() if ended >= begun else None


def _time(timestamp: str) -> datetime:
    # Local time, whatever its zone is: two polls of one job are compared.
    return datetime.strptime(timestamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
