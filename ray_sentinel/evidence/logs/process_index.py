"""Maps ranks, local ranks, pids and hosts to each other, as far as lines name them."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.launchers import is_of_srun, is_of_torchrun
from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.evidence.logs.records import FileFacts, Hit

_IP = re.compile(r"\b(?:ip|IP|address|IP address)[:=]? ?(\d{1,3}(?:\.\d{1,3}){3})\b")


class ProcessIndex:
    """Which pid is which rank on which host, as far as lines show."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self._by_pid: dict[int, list[Origin]] = {}
        self._by_rank: dict[int, list[Origin]] = {}
        self._by_local: dict[int, list[Origin]] = {}
        ranks = {h.origin.rank for f in files for h in f.hits} - {None}
        self._several = len(ranks) > 1
        # Where torchrun starts the ranks, srun's tasks are launchers.
        srun = not any(is_of_torchrun(hit) for facts in files for hit in facts.hits)
        for facts in files:
            for origin in facts.processes:
                self._learn(origin.filled(facts.file.origin))
            if facts.file.origin.pid is not None or facts.file.origin.rank is not None:
                self._learn(facts.file.origin)
            for hit in facts.hits:
                if hit.origin.rank is not None and (hit.origin.pid is not None or hit.origin.host):
                    self._learn(hit.origin)
                if hit.groups.get("pid") and hit.signature.accuses == "named":
                    self._learn(named_by(hit))
                elif srun and is_of_srun(hit) and hit.groups.get("rank", "").isdigit():
                    self._learn(Origin(rank=int(hit.groups["rank"]), host=hit.groups["host"]))
        ranked = (known for same in self._by_local.values() for known in same)
        apart = any(known.rank != known.local_rank for known in ranked)
        self.one_node = not apart and _one_node(files)
        """As far as the logs tell, the job runs on a single node."""

    def _learn(self, origin: Origin) -> None:
        if origin.pid is not None:
            self._by_pid.setdefault(origin.pid, []).append(origin)
        if origin.rank is not None:
            self._by_rank.setdefault(origin.rank, []).append(origin)
            if origin.local_rank is not None:
                self._by_local.setdefault(origin.local_rank, []).append(origin)

    def device_rank(self, origin: Origin) -> int | None:
        """The local rank whose device an unnamed process in a job of several ranks mentions.

        Launchers give local rank N device N. Device 0 proves nothing: a process that is shown a
        single device calls it 0.
        """
        nameless = origin.rank is None and origin.pid is None and origin.gpu.isdigit()
        return int(origin.gpu) or None if nameless and self._several else None

    def complete(self, origin: Origin) -> Origin:
        """``origin``, completed by what else is known about the same process."""
        found = origin
        if origin.pid is not None:
            for other in self._by_pid.get(origin.pid, ()):
                if same_place(found, other):
                    found = found.filled(other)
        elif origin.rank is not None:
            for other in self._by_rank.get(origin.rank, ()):
                found = found.filled(other)
        elif origin.local_rank is not None:
            others = [o for o in self._by_local.get(origin.local_rank, ()) if may_be(o, origin)]
            if len({other.rank for other in others}) == 1:
                for other in others:
                    found = found.filled(other)
        return found


def _one_node(files: Sequence[FileFacts]) -> bool:
    places = {f.file.origin.host or f.file.origin.ip for f in files} - {""}
    said = {f.facts["nodes"] for f in files if "nodes" in f.facts}
    return len(places) <= 1 and said <= {"1"}


def may_be(one: Origin, other: Origin) -> bool:
    """Whether both may be on the same host and in the same srun task."""
    return same_place(one, other) and (
        one.task is None or other.task is None or one.task == other.task
    )


def same_place(one: Origin, other: Origin) -> bool:
    """Whether both may be on the same host."""
    return not (one.ip and other.ip and one.ip != other.ip) and not (
        one.host and other.host and one.host != other.host
    )


def named_by(hit: Hit) -> Origin:
    """The process that the entry's groups, and an address in the text, name."""

    def number(key: str) -> int | None:
        text = hit.groups.get(key, "")
        return int(text) if text.isdigit() else None

    ip = hit.groups.get("ip", "")
    if not ip and (match := _IP.search(hit.text)):
        ip = match.group(1)
    return Origin(
        rank=number("rank"),
        local_rank=number("local"),
        pid=number("pid"),
        ip=ip,
        host=hit.groups.get("host", ""),
        actor=hit.groups.get("actor", ""),
        gpu=hit.groups.get("gpu", ""),
    )
