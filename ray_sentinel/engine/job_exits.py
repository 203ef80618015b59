"""How the processes of one job ended: in their order, each told once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from ray_sentinel.engine.exits import SIGKILL
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import Exit


class JobExits:
    """Exits since the job's last incident. Times are the coordinator's, in Unix seconds."""

    def __init__(
        self,
        since: Iterable[tuple[float, Exit]] = (),
        told: Iterable[tuple[ProcessId, float]] = (),
    ) -> None:
        """What another one knew: what it gave when iterated, and its ``told``."""
        self._since = list(since)
        self._told = dict(told)
        """Processes whose exit was told, and when they ended: also before the last incident."""

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[tuple[float, Exit]]:
        """(time, exit), the first that ended first."""
        return iter(self._since)

    @property
    def told(self) -> tuple[tuple[ProcessId, float], ...]:
        """The processes whose exit is known, also before the last incident, and when they ended."""
        return tuple(self._told.items())

    def take(self, exit_: Exit, at: float) -> bool:
        """A process ended at ``at``. Returns False where that is known already."""
        process = exit_.rank.process
        if process in self._told and not self._says_more(exit_):
            return False
        self._told[process] = at
        self._since = [(when, old) for when, old in self._since if old.rank.process != process]
        self._since.append((at, exit_))
        self._since.sort(key=lambda pair: (pair[0], pair[1].order))
        return True

    def _says_more(self, exit_: Exit) -> bool:
        """A second agent of one machine may tell of a rank that is not its own, without a status;
        the one that watched it tells how it ended."""
        if exit_.code is None and exit_.signal is None:
            return False
        return any(
            old.rank.process == exit_.rank.process and old.code is None and old.signal is None
            for _, old in self._since
        )

    def killed_for_memory(self, node: str, pid: int) -> list[Exit]:
        """The kernel says so of a process, a moment after it had ended. Returns what is now known
        of its exit."""
        changed = []
        for index, (at, exit_) in enumerate(self._since):
            where = exit_.rank.node, exit_.rank.process.pid
            if where == (node, pid) and exit_.signal == SIGKILL:
                told = msgspec.structs.replace(exit_, oom_killed=True)
                self._since[index] = (at, told)
                changed.append(told)
        return changed

    def forgive(self) -> None:
        """An incident is over: the exits that it explained are not brought up again."""
        self._since.clear()

    def forget_before(self, edge: float) -> None:
        """Let go of exits before ``edge``."""
        self._since = [(at, exit_) for at, exit_ in self._since if at >= edge]

    def forget_replaced(
        self, edge: float, live_ranks: Collection[int], known: Collection[ProcessId]
    ) -> None:
        """Let go of exits before ``edge`` whose rank lives again, and of processes that ended
        before it and are not ``known`` any more."""
        self._since = [
            (at, exit_)
            for at, exit_ in self._since
            if at >= edge or exit_.rank.id.rank not in live_ranks
        ]
        self._told = {
            process: at for process, at in self._told.items() if at >= edge or process in known
        }
