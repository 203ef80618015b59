"""Captured stacks on disk: which files to read, whose they are, and which look they belong to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ray_sentinel.cli.named_paths import files_below, is_folder, regular
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.stacks import StackReader, by_process, classify_process
from ray_sentinel.evidence.stacks.readers import kernel
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.formats import named, parse, recognise
from ray_sentinel.evidence.stacks.readers.parts import TextPart, parts
from ray_sentinel.evidence.stacks.readers.prefixes import is_folded, without_prefixes
from ray_sentinel.evidence.stacks.readers.sources import (
    SourceLocation,
    from_path,
    rank_in_text,
    ranks_of_titles,
    ranks_on_one_host,
)
from ray_sentinel.evidence.stacks.same import refers_to, unfold
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact, StackTrace

MAX_BYTES = 64 << 20
"""Most bytes of one file; the rest is not read, and the output says so."""

_NEVER = (".md", ".html", ".gz", ".zst", ".tar", ".zip", ".png", ".pickle", ".pkl", ".pt")
_OURS = frozenset({"incident.json", "ranks.json", "report.json", "bundle.json"})


class StackFiles(msgspec.Struct, kw_only=True):
    """What was found on disk."""

    rounds: list[list[StackTrace]] = []
    read: list[str] = []
    skipped: list[str] = []
    """Files that were left out, with the reason."""
    failed: dict[str, str] = {}
    """Paths that were named but hold no readable stack, with the reason."""

    def facts(self) -> list[list[StackFact]]:
        """One fact a process and round."""
        reader = StackReader()
        return [
            [classify_process(traces, reader) for traces in by_process(found).values()]
            for found in self.rounds
        ]


def load(paths: Sequence[str]) -> StackFiles:
    """Read all stacks in files and folders. Raises InputError if there is not one."""
    files = StackFiles()
    ranks: dict[tuple[str, int], int] = {}
    seen: dict[tuple[ProcessId, str], int] = {}
    telling: set[str] = set()
    candidates = list(_candidates(paths, files, ranks))
    stems = Counter(path.stem for path, _name in candidates)
    read = [(name, _read(path, files, ranks, stems)) for path, name in candidates]
    shared = _of_several_ranks(trace for _name, traces in read for trace in traces)
    for name, traces in read:
        if any(map(_is_informative, traces)):
            telling.add(name)
        for trace in (_apart(trace, shared) for trace in traces):
            key = (trace.process, trace.tool)
            round_ = seen.get(key, 0)
            seen[key] = round_ + 1
            while len(files.rounds) <= round_:
                files.rounds.append([])
            files.rounds[round_].append(trace)
    _rank_by_command(files)
    if not files.read:
        raise InputError(_nothing(paths, files))
    for name in paths:
        if name not in telling:
            why = [reason for reason in files.skipped if reason.startswith(f"{Path(name)}: ")]
            files.failed.setdefault(name, (*why, f"{name}: holds no stack that can be read")[0])
    return files


def _of_several_ranks(traces: Iterable[StackTrace]) -> set[ProcessId]:
    """What stands for processes of several ranks: in containers pids come again."""
    ranks: dict[ProcessId, set[int]] = {}
    for trace in traces:
        if trace.rank is not None:
            ranks.setdefault(trace.process, set()).add(trace.rank.rank)
    return {process for process, known in ranks.items() if len(known) > 1}


def _apart(trace: StackTrace, shared: set[ProcessId]) -> StackTrace:
    """``trace``, its process named by its rank too where other ranks' have the same name."""
    if trace.rank is None or trace.process not in shared:
        return trace
    return _on(trace, f"{trace.process.host} rank {trace.rank.rank}".strip(), trace.process.pid)


def _on(trace: StackTrace, host: str, pid: int) -> StackTrace:
    return msgspec.structs.replace(trace, process=ProcessId(host, pid, trace.process.start))


def _is_informative(trace: StackTrace) -> bool:
    """Whether it says something about its process, and not only that a tool failed."""
    return bool(trace.threads or trace.kernels or trace.kernels_listed or trace.state)


def _nothing(paths: Sequence[str], files: StackFiles) -> str:
    if len(files.failed) == len(set(paths)):
        return "; ".join([*files.failed.values()][:5])
    reasons = "; ".join([*files.failed.values(), *files.skipped][:5])
    return (
        f"{', '.join(paths)}: no stacks are there"
        + (f" ({reasons})" if reasons else "")
        + "; expected is output of py-spy, pystack, gdb, cuda-gdb, faulthandler or of"
        + " /proc/PID/stack"
    )


def _candidates(
    paths: Sequence[str], files: StackFiles, ranks: dict[tuple[str, int], int]
) -> Iterator[tuple[Path, str]]:
    """Files to read, in the order of the looks, each with the path that was given for it."""
    for name in paths:
        path = Path(name)
        try:
            folder = is_folder(name)
        except InputError as error:
            files.failed[name] = str(error)
            continue
        if folder:
            yield from ((file, name) for file in _inside(path, files, ranks))
        else:
            yield path, name


def _inside(folder: Path, files: StackFiles, ranks: dict[tuple[str, int], int]) -> list[Path]:
    found = list(files_below(folder))
    for table in (item for item in found if item.name in ("ranks.json", "incident.json")):
        with suppress(InputError):  # a capture is read without it
            ranks.update(rank_table(table))
    layout = [item for item in found if from_path(str(item)).host]
    # A folder in our layout also holds reports and logs, which quote stacks.
    if layout and len(layout) < len(found):
        rest = {str(item) for item in found} - {str(item) for item in layout}
        files.skipped += [
            f"{item}: not named as a capture" for item in sorted(rest) if not _ours(item)
        ]
    return layout or [item for item in found if not _ours(str(item))]


def _ours(path: str) -> bool:
    return os.path.basename(path) in _OURS or path.endswith(_NEVER)


def _read(
    path: Path, files: StackFiles, ranks: dict[tuple[str, int], int], stems: Counter[str]
) -> tuple[StackTrace, ...]:
    try:
        regular(path)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except InputError as error:
        files.skipped.append(f"{path}: {error}")
        return ()
    except OSError as error:
        files.skipped.append(f"{path}: cannot be read: {error.strerror}")
        return ()
    if len(data) > MAX_BYTES:
        files.skipped.append(f"{path}: only the first {MAX_BYTES >> 20} MiB are read")
        data = data[:MAX_BYTES]
    raw = _with_equal_stacks(path, tx.decode(data))
    source = from_path(str(path))
    if recognise(without_prefixes(raw)) is None and named(source.tool) is None:
        files.skipped.append(f"{path}: holds no stacks")
        return ()
    if is_folded(raw):
        files.skipped.append(
            f"{path}: Ray has put equal lines of several workers together, which leaves gaps in"
            " their stacks; RAY_DEDUP_LOGS=0 keeps them"
        )
        return ()
    files.read.append(str(path))
    found = parts(raw, _holds_stacks)
    if len(found) > 1:
        # A file's pid and rank are of one process at most.
        source = SourceLocation(tool=source.tool, host=source.host)
    return tuple(trace for part in found for trace in _of_part(path, part, source, ranks, stems))


def _holds_stacks(text: str) -> bool:
    return recognise(without_prefixes(text)) is not None and any(
        map(_is_informative, parse(text, ProcessId("", 0)))
    )


def _of_part(
    path: Path,
    part: TextPart,
    source: SourceLocation,
    ranks: dict[tuple[str, int], int],
    stems: Counter[str],
) -> Iterator[StackTrace]:
    text = without_prefixes(part.text)
    host = part.host or source.host
    if not host and not source.pid and not part.name:
        host = _of_one_host(path, text, stems)
    found = parse(text, ProcessId(host, source.pid), hint=source.tool)
    alone = len({trace.process for trace in found}) == 1
    for index, trace in enumerate(found):
        own = rank_in_text(trace.command)
        # A text's head speaks of the first process in it.
        head = None if index else rank_in_text(text)
        if alone:
            said = [source.rank, part.rank, rank_in_text(part.text), own, head]
        else:
            said = [own, source.rank, head]
        yield _ranked(_by_part(trace, part), said, ranks)


def _by_part(trace: StackTrace, part: TextPart) -> StackTrace:
    """``trace`` with the pid that the launcher wrote; without a pid, with a host name that only its
    part has."""
    if trace.process.pid:
        return trace
    if part.pid:
        return _on(trace, trace.process.host, part.pid)
    return _on(trace, f"{trace.process.host} {part.name}".strip(), 0) if part.name else trace


def _with_equal_stacks(path: Path, text: str) -> str:
    """The text, with the stacks of the file beside it that it says are the same."""
    name = refers_to(text)
    if not name or name == path.name:
        return text
    try:
        regular(path.with_name(name))
        with path.with_name(name).open("rb") as file:
            return unfold(text, file.read(MAX_BYTES).decode("utf-8", "replace"))
    except (InputError, OSError):
        return text  # it says nothing then, and is listed as a file without stacks


def _of_one_host(path: Path, text: str, stems: Counter[str]) -> str:
    """The host's name taken from the file's name, if the same pids may occur in other files:
    if it is a kernel's log, of which each node has one, or names no process; otherwise empty.
    """
    traces = parse(text, ProcessId("", 0))
    if any(trace.tool == "kernel" for trace in traces) and kernel.is_log(text):
        return path.stem if stems[path.stem] == 1 else path.absolute().parent.name
    if all(trace.process.pid for trace in traces):
        return ""
    return _of_torchrun(path) or path.stem


def _of_torchrun(path: Path) -> str:
    """The process that wrote ``RUN/attempt_0/LOCAL_RANK/stderr.log`` of ``--log-dir``, else ""."""
    rank, attempt = path.parent.name, path.parent.parent.name
    if not rank.isdecimal() or not attempt.startswith("attempt_"):
        return ""
    return f"{path.parent.parent.parent.name} local rank {rank}".strip()


def _ranked(
    trace: StackTrace, said: Iterable[int | None], ranks: dict[tuple[str, int], int]
) -> StackTrace:
    """``trace`` with its rank: from the table, or else the first one that was given."""
    known = (ranks.get(_key(trace)), *said)
    return _numbered(trace, next((rank for rank in known if rank is not None), None))


def _rank_by_command(files: StackFiles) -> None:
    """Give a rank to processes that nothing else gave one, if titles or command lines do."""
    every = [trace for found in files.rounds for trace in found]
    unknown = [trace for trace in every if trace.rank is None]
    ranks = ranks_of_titles(trace.command for trace in unknown)
    local: dict[tuple[str, int], int] = {}
    if len(unknown) == len(every) and not ranks:
        local = ranks_on_one_host((t.process.host, t.process.pid, t.command) for t in unknown)
    if not ranks and not local:
        return
    files.rounds = [
        [_numbered(trace, ranks.get(trace.command, local.get(_key(trace)))) for trace in found]
        for found in files.rounds
    ]


def _key(trace: StackTrace) -> tuple[str, int]:
    return trace.process.host, trace.process.pid


def _numbered(trace: StackTrace, rank: int | None) -> StackTrace:
    if trace.rank is not None or rank is None:
        return trace
    return msgspec.structs.replace(trace, rank=RankId("", 0, rank))
