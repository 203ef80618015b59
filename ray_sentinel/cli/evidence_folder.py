"""Everything that lies in a folder: what each file is, and what its own explainer says of it.

A file is what its reader can read: its name is asked only where two readers could.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.capture.ras_process import explain_in_process
from ray_sentinel.cli import recorder_files, stack_files
from ray_sentinel.cli.commands.explain import WHOLE, kinds_of_evidence
from ray_sentinel.cli.explainers.nccl_ras import SECONDS
from ray_sentinel.cli.named_paths import files_below, is_folder
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import is_reduced
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.find import find_logs
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.triage import Triage
from ray_sentinel.waitgraph.stacks import Explanation
from ray_sentinel.waitgraph.stacks import explain as explain_stacks

_HEAD = 64 << 10
_MAX_RAS = 16 << 20
"""Most bytes that are read of a file that may be an answer of NCCL RAS."""
_MAX_RECORD = 32 << 20
_REPORTS = frozenset({"report.md", "report.html", "series.json", "report.json", "bundle.json"})
_RECORDER = re.compile(rb'"(?:entries|pg_config|pg_status|nccl_comm_state)"\s*:')
_RAS = re.compile(
    rb"^\s*Communicators\.\.\. \(|^RAS Monitor Mode|PEER_DEAD: |"
    rb'"communicators(?:_count)?"\s*:|^\s*Group +Comms +Nodes|^Job summary\s*$',
    re.MULTILINE,
)
_PICKLE = b"\x80"


class FolderFiles(msgspec.Struct, kw_only=True):
    """What was found in a folder, by what it is, and what each kind says by itself."""

    folder: str
    kinds: dict[str, str] = {}
    """What each file is: "flight-recorder", "stacks", "nccl-ras", "logs", "incident", "ranks" or
    "report"."""
    unknown: list[str] = []
    """Files that nothing here can read."""
    problems: list[str] = []
    """What is evidence but could not be read: the file, the reason and the remedy."""
    recorder: RecorderFacts | None = None
    stacks: Explanation | None = None
    rounds: list[list[StackFact]] = []
    ras: RasFacts | None = None
    logs: Triage | None = None
    incident: Incident | None = None
    processes: dict[int, ProcessId] = {}
    """The process of each rank, as the incident's record tells."""


def read_folder(name: str) -> FolderFiles:
    """Read and explain, kind by kind. Raises InputError if nothing is there to explain."""
    if not is_folder(name):
        kinds = ", ".join(kind for kind in kinds_of_evidence() if kind != WHOLE)
        raise InputError(
            f"{name}: is a file; name its folder, or what the file holds: explain KIND {name}, "
            f"where KIND is one of {kinds}; a log is read by: ray-sentinel triage {name}"
        )
    found = FolderFiles(folder=name)
    paths = list(files_below(Path(name), lambda path, why: found.problems.append(f"{path}: {why}")))
    _add_incident(found, paths)
    _add_recorder(found, [path for path in paths if _free(found, path)])
    _add_ras(found, [path for path in paths if _free(found, path)])
    _add_stacks(found, paths)
    _add_logs(found, paths)
    found.unknown = [str(path) for path in paths if str(path) not in found.kinds]
    if not any((found.recorder, found.stacks, found.ras, found.logs, found.incident)):
        raise InputError(_nothing(found))
    return found


def _nothing(found: FolderFiles) -> str:
    reasons = "; ".join(
        [*found.problems, *(f"{name}: not recognised" for name in found.unknown)][:5]
    )
    return (
        f"{found.folder}: nothing in it can be explained"
        + (f" ({reasons})" if reasons else "")
        + "; expected are flight-recorder dumps, stacks of py-spy, gdb or cuda-gdb, answers of NCCL"
        + " RAS, logs, or an incident's folder"
    )


def _free(found: FolderFiles, path: Path) -> bool:
    return str(path) not in found.kinds


def _read(path: Path, most: int, problems: list[str]) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        problem = f"{path}: cannot be read: {error.strerror or error}; make it readable"
        if problem not in problems:
            problems.append(problem)
        return b""


def _add_incident(found: FolderFiles, paths: Iterable[Path]) -> None:
    for path in paths:
        if path.name in _REPORTS:
            found.kinds[str(path)] = "report"
        elif path.name == "ranks.json":
            found.kinds[str(path)] = "ranks"
            try:
                table = rank_table(str(path))
            except InputError as error:
                found.problems.append(str(error))
                continue
            found.processes |= {rank: ProcessId(*place) for place, rank in table.items()}
        elif path.name == "incident.json":
            found.kinds[str(path)] = "incident"
            data = _read(path, _MAX_RECORD, found.problems)
            try:
                record = msgspec.json.decode(data, type=Incident) if data else None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                found.problems.append(f"{path}: is no incident of ray_sentinel: {error}")
                continue
            if found.incident is not None and record is not None:
                found.problems.append(
                    f"{path}: a second incident; explain each incident's folder by itself"
                )
            elif record is not None:
                found.incident = record
                found.processes |= _processes(record)


def _processes(record: Incident) -> dict[int, ProcessId]:
    """The process of each rank for which the record gives one."""
    found = {one.rank: ProcessId(one.host, one.pid) for one in record.logs if one.rank is not None}
    for fact in record.verdict.stacks if record.verdict is not None else ():
        if fact.rank is not None:
            found[fact.rank.rank] = fact.process
    named = record.processes.items()
    return found | {int(rank): process for rank, process in named if rank.isdecimal()}


def _add_recorder(found: FolderFiles, paths: Iterable[Path]) -> None:
    """Each folder's dumps are one look; the last is judged, with the one before it as earlier."""
    sets: dict[Path, list[Path]] = {}
    for path in paths:
        head = _read(path, _HEAD, found.problems)
        dump = is_reduced(head) or head[:1] == _PICKLE
        if dump or (head.lstrip()[:1] == b"{" and _RECORDER.search(head)):
            sets.setdefault(path.parent, []).append(path)
    looks = []
    for dumps in sets.values():
        try:
            files = recorder_files.find([str(path) for path in dumps])
        except InputError as error:
            # Of a folder, its name says enough.
            named = ", ".join(map(str, dumps))
            found.problems.append(str(error).replace(named, str(dumps[0].parent)))
            continue
        kept = {path for ranks in (files.paths, *files.others) for path in ranks.values()}
        found.kinds |= {str(path): "flight-recorder" for path in kept}
        looks.append(files)
    if not looks:
        return
    facts = looks[-1].explained(looks[-2] if len(looks) > 1 else None)
    found.problems += facts.problems
    if facts.ranks:
        found.recorder = facts


def _add_ras(found: FolderFiles, paths: Iterable[Path]) -> None:
    polls: dict[str, bytes] = {}
    for path in paths:
        if not _RAS.search(_read(path, _HEAD, found.problems)):
            continue
        data = _read(path, _MAX_RAS, found.problems)
        try:
            if explain_in_process({str(path): data}, seconds=SECONDS).polls:
                polls[str(path)] = data
        except InputError as error:
            found.problems.append(f"{path}: {error}")
    if not polls:
        return
    ranks = {(one.host, one.pid): rank for rank, one in found.processes.items()}
    facts = explain_in_process(polls, ranks=ranks, seconds=SECONDS)
    found.kinds |= dict.fromkeys(polls, "nccl-ras")
    found.problems += facts.problems
    found.ras = facts


def _add_stacks(found: FolderFiles, paths: Sequence[Path]) -> None:
    try:
        files = stack_files.load([found.folder])
    except InputError:
        return  # there are none; what is then left is not recognised
    mine = [name for name in files.read if found.kinds.get(name, "stacks") == "stacks"]
    if not mine:
        return
    found.kinds |= dict.fromkeys(mine, "stacks")
    found.problems += [
        text
        for text in files.skipped
        if not text.endswith((": holds no stacks", ": not named as a capture"))
    ]
    ranks = {(one.host, one.pid): rank for rank, one in found.processes.items()}
    found.rounds = [[_ranked(fact, ranks) for fact in facts] for facts in files.facts()]
    found.stacks = explain_stacks(found.rounds)


def _ranked(fact: StackFact, ranks: dict[tuple[str, int], int]) -> StackFact:
    rank = ranks.get((fact.process.host, fact.process.pid))
    if fact.rank is not None or rank is None:
        return fact
    return msgspec.structs.replace(fact, rank=RankId("", 0, rank))


def _add_logs(found: FolderFiles, paths: Collection[Path]) -> None:
    taken = {path for path in paths if not _free(found, path)}
    if len(taken) == len(paths):
        return
    try:
        logs = [log.path for log in find_logs(Path(found.folder))]
        mine = set(logs) & (set(paths) - taken)
        if not mine:
            return
        skip = set(logs) - mine
        answer = triage_path(Path(found.folder), load_catalogue([]), skip=skip)
    except InputError as error:
        found.problems.append(str(error))
        return
    found.kinds |= {str(path): "logs" for path in mine if not _is_empty(path)}
    found.logs = answer
    found.problems += answer.problems


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return True
