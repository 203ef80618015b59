"""Reads one text output, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.nccl_ras import text_phrases as phrases
from ray_sentinel.evidence.nccl_ras.poll import Communicator, Poll, RasProcess, TableRow
from ray_sentinel.evidence.nccl_ras.text_communicator import Draft, RankSet


class RasTextReader:
    """The state after the lines read so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.library = self.version = ""
        self.seconds: float | None = None
        self.rows: list[TableRow] = []
        self.drafts: dict[tuple[int, int, str], Draft] = {}
        self.dead: dict[tuple[str, int], RasProcess] = {}
        self.missing: dict[tuple[str, int], RasProcess] = {}
        self.dead_count = self.missing_count = self.timeouts = 0
        self.processes: int | None = None
        self.gpus: int | None = None
        self.section = ""
        self.draft: Draft | None = None
        self.group: RankSet | None = None
        self.summary = False
        self.problems: list[str] = []
        self.handlers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = (
            (phrases.SECTION, self._open_section),
            (phrases.RANK, self._rank),
            (phrases.EVENT, self._event),
            (phrases.PROCESS, self._process),
            (phrases.JOB_MISSING, self._job_missing),
            (phrases.DEAD, self._job_dead),
            (phrases.RANKS_MISSING, self._ranks_missing),
            (phrases.MISSING_LIST, self._missing_list),
            (phrases.OPERATION, self._operation),
            (phrases.STATUS, lambda _: self._kind("status")),
            (phrases.ERRORS, lambda _: self._kind("error")),
            (phrases.GROUP_COUNT, lambda m: self._group(int(m[1]), int(m[2]))),
            (phrases.GROUP_NONE, lambda m: self._group(int(m[1]), 0)),
            (phrases.GROUP_STATUS, lambda m: self._group(int(m[1]), phrases.status_of(m[2]))),
            (phrases.GROUP_ERROR, lambda m: self._group(int(m[1]), m[2])),
            (phrases.TIMEOUTS, self._timeouts),
            (phrases.ROW, self._row),
            (phrases.JOB_SECTION, self._job_section),
            (phrases.VERSION, self._version),
            (phrases.GATHERED, self._gathered),
            (phrases.NUMBERS, self._numbers),
        )

    def read(self, lines: Iterable[str]) -> Poll | None:
        """The poll; None if the lines contain nothing of one."""
        for line in lines:
            if "Job summary" in line:
                self.summary = True
            for pattern, handle in self.handlers:
                if (found := pattern.search(line)) is not None:
                    handle(found)
                    break
        communicators = tuple(self._communicators())
        if not (self.rows or communicators or self.dead or self.missing or self.version):
            return None
        return Poll(
            name=self.name,
            text=True,
            library=self.library,
            version=self.version,
            communicators=communicators,
            rows=tuple(self.rows),
            dead=tuple(self.dead.values()),
            missing=tuple(p for key, p in self.missing.items() if key not in self.dead),
            dead_count=max(self.dead_count, len(self.dead)),
            missing_count=max(self.missing_count, len(self.missing)),
            processes=self.processes,
            gpus=self.gpus,
            seconds=self.seconds,
            timeouts=self.timeouts,
            problems=tuple(self.problems),
        )

    def _communicators(self) -> Iterable[Communicator]:
        gone = [*self.dead.values(), *(p for k, p in self.missing.items() if k not in self.dead)]
        for (row, _, name), draft in self.drafts.items():
            if row < len(self.rows) and self.rows[row].size == 0:
                self.problems.append(
                    f"communicator {name} has no ranks in the table: NCCL before 2.29.2 reads "
                    "beyond its memory where ranks are missing; left out"
                )
                continue
            size = self.rows[row].size if row < len(self.rows) else 0
            yield _placed(draft.finish(size), gone)

    def _version(self, found: re.Match[str]) -> None:
        self.library, self.version = found[1], found[2]

    def _gathered(self, found: re.Match[str]) -> None:
        self.seconds, self.summary = float(found[1]), False

    def _numbers(self, found: re.Match[str]) -> None:
        """A line of the job summary: nodes, processes (per node, per process,) and GPUs."""
        if not self.summary:
            return
        numbers = [int(text) for text in found[1].split()]
        # Nodes, per node, per process, processes, GPUs; or, where these differ: three totals last.
        self.processes, self.gpus = numbers[-2], numbers[-1]

    def _row(self, found: re.Match[str]) -> None:
        self.rows.append(
            TableRow(
                communicators=int(found[2]),
                size=int(found[5]),
                ranks=int(found[6]),
                status=phrases.status_of(found[7]),
                errors=frozenset(found[8].split(",")) - {"OK"},
            )
        )

    def _open_section(self, found: re.Match[str]) -> None:
        key = (int(found[1]), int(found[2]), found[3].lower())
        self.draft = self.drafts.setdefault(key, Draft(found[3]))
        self.section, self.group = found[4], None
        self.draft.subject = ""

    def _job_section(self, found: re.Match[str]) -> None:
        self.section, self.draft, self.group = found[1], None, None

    def _job_missing(self, found: re.Match[str]) -> None:
        self.section, self.draft = "INCOMPLETE", None
        self.missing_count = int(found[1])

    def _job_dead(self, found: re.Match[str]) -> None:
        self.section, self.draft = "DEAD", None
        self.dead_count = int(found[1])

    def _process(self, found: re.Match[str]) -> None:
        if self.section not in ("DEAD", "INCOMPLETE"):
            return  # the "outlier node" of the job summary, or of another tool
        gpus = tuple(int(text) for text in (found[4] or found[3]).split(",") if text)
        process = RasProcess(host=found[2], pid=int(found[1]), gpus=gpus)
        where = self.dead if self.section == "DEAD" else self.missing
        where[process.host, process.pid] = process

    def _event(self, found: re.Match[str]) -> None:
        if found[1] == "PEER_DEAD":
            gpus = tuple(int(text) for text in (found[4] or "").split(",") if text)
            process = RasProcess(host=found[3], pid=int(found[2]), gpus=gpus)
            self.dead[process.host, process.pid] = process

    def _ranks_missing(self, found: re.Match[str]) -> None:
        if self.draft is not None:
            self.draft.subject = "missing"
            self.group = self.draft.group("missing", int(found[1]), "UNRESPONSIVE")

    def _missing_list(self, found: re.Match[str]) -> None:
        if self.group is not None:
            numbers = [int(text) for text in found[1].replace(" ", "").split(",") if text]
            for number in numbers:
                self.group.add(number)

    def _operation(self, found: re.Match[str]) -> None:
        self._kind(f"count {found[1]}")

    def _kind(self, subject: str) -> None:
        if self.draft is not None:
            self.draft.subject, self.group = subject, None

    def _group(self, count: int, value: int | str) -> None:
        if self.draft is not None and self.draft.subject:
            fits = self.draft.accepts(value)
            self.group = self.draft.group(self.draft.subject, count, value) if fits else None

    def _rank(self, found: re.Match[str]) -> None:
        if self.draft is None:
            return
        value = phrases.rank_value(found["what"])
        if value is not None and self.draft.subject:
            self._group(1, value)
        if self.group is None:
            return
        gpu = found["nvml"] or found["cuda"]
        self.group.add(
            int(found["rank"]),
            host=found["host"] or "",
            pid=int(found["pid"]) if found["pid"] else None,
            gpu=int(gpu) if gpu else None,
        )

    def _timeouts(self, found: re.Match[str]) -> None:
        self.timeouts = int(found[1])


def _placed(communicator: Communicator, gone: list[RasProcess]) -> Communicator:
    """2.24 and 2.25 give the numbers of missing ranks only. With one of each it is clear which
    process it is, and with as many processes of one node, too: launchers number a node's ranks as
    its GPUs are numbered."""
    mute = [m for m in communicator.members if m.state == "UNRESPONSIVE" and m.place is None]
    several = any(len(process.gpus) > 1 for process in gone)
    if not mute or len(mute) != len(gone) or several or len({one.host for one in gone}) > 1:
        return communicator
    if len(gone) > 1 and not all(process.gpus for process in gone):
        return communicator
    gone = sorted(gone, key=lambda process: process.gpus)
    mute.sort(key=lambda member: member.rank)
    found = {
        member.rank: msgspec.structs.replace(
            member,
            host=process.host,
            pid=process.pid,
            gpu=process.gpus[0] if process.gpus else None,
        )
        for member, process in zip(mute, gone, strict=True)
    }
    members = tuple(found.get(member.rank, member) for member in communicator.members)
    return msgspec.structs.replace(communicator, members=members)
