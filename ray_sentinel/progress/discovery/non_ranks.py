"""Processes that have a rank's variables but are not ranks: side-cars, a shell's commands.

They have the same launcher variables as the rank, and only the libraries that they have loaded
distinguish them: a rank has one that ranks compute or communicate with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ray_sentinel import regex as re
from ray_sentinel.progress.discovery.ranks import DiscoveredRank
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.process_memory import MAX_FILE, ProcessMemory

_LIBRARIES = re.compile(
    rb"/(lib(torch|cudart|nccl|rccl|gloo|mpi|tensorflow|jax|paddle|hccl|ccl|amdhip64)[\w.-]*\.so"
    rb"|(xla_extension|_pywrap_tensorflow|_jax|libmx)[\w.-]*\.so)"
)

LOOKS = 30
"""How many polls, about one a second, come before a duplicate rank number is reported: a rank that
has just started may not have loaded anything yet."""


class NonRanks:
    """Remembers which processes are not ranks, because they may outlive the rank."""

    def __init__(self, memory: ProcessMemory) -> None:
        self._memory = memory
        self._beside: set[Key] = set()
        self._loaded: set[Key] = set()
        self._looks: dict[tuple[Key, ...], int] = {}
        self.problems: list[str] = []
        """Which processes share a rank number; the caller reads and clears this."""

    def ranks(self, found: Iterable[DiscoveredRank]) -> list[DiscoveredRank]:
        """``found`` without processes that are not ranks; a number that still occurs twice is
        reported once."""
        by_number: dict[tuple[str, int, int], list[DiscoveredRank]] = defaultdict(list)
        for item in found:
            by_number[item.job, item.attempt, item.rank].append(item)
        keys = {item.process.key for group in by_number.values() for item in group}
        self._beside &= keys
        self._loaded &= keys
        self._looks = {pair: n for pair, n in self._looks.items() if keys.issuperset(pair)}
        shared = [group for group in by_number.values() if self._unclear(group)]
        self._examine(item for group in shared for item in group)
        for group in shared:
            sure = [item for item in group if self._is_sure(item)]
            if sure:
                self._beside |= {item.process.key for item in group if item not in sure}
            self._note_duplicate(sure or group)
        return [
            item
            for group in by_number.values()
            for item in group
            if item.process.key not in self._beside
        ]

    def _unclear(self, group: list[DiscoveredRank]) -> bool:
        return len(group) > 1 or group[0].process.key in self._beside

    def _is_sure(self, item: DiscoveredRank) -> bool:
        return item.source != "environ" or item.process.key in self._loaded

    def _examine(self, items: Iterable[DiscoveredRank]) -> None:
        asked = {item.process.key for item in items if not self._is_sure(item)}
        maps = self._memory.maps(asked)
        # For a process that hangs, or has more than we read, it is unknown: no reason to leave it
        # out.
        self._loaded |= asked - maps.keys()
        self._loaded |= {
            key for key, data in maps.items() if len(data) >= MAX_FILE or _LIBRARIES.search(data)
        }
        self._beside -= self._loaded

    def _note_duplicate(self, group: list[DiscoveredRank]) -> None:
        keys = tuple(item.process.key for item in group)
        self._looks[keys] = self._looks.get(keys, 0) + 1
        if len(keys) > 1 and self._looks[keys] == LOOKS:
            pids = " and ".join(str(pid) for pid, _ in keys)
            of_job = f" of {group[0].job}" if group[0].job else ""
            self.problems.append(
                f"rank {group[0].rank}{of_job} is there twice (pids {pids}): call "
                "attach(rank=..., world_size=...) in the one that trains"
            )
