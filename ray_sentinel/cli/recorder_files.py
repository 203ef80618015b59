"""Flight-recorder dumps on disk: which files are dumps, and of which rank."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.capture.dump_reducer import DumpReducer
from ray_sentinel.cli.named_paths import files_below, is_folder, regular
from ray_sentinel.cli.output import clean
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import is_reduced
from ray_sentinel.evidence.flight_recorder.tables import MAX_RANKS
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain

Family = tuple[str, str]
"""The prefix and the suffix that the file names of one set of dumps have in common."""

_NAME = re.compile(
    r"^(?P<prefix>.*?)(?P<rank>\d+)(?P<suffix>\.(json|pickle|pkl|bin|dump|trace|reduced))?$"
)
_NOT_DUMPS = (".log", ".txt", ".md", ".py", ".html", ".gz", ".tar", ".zip", ".csv", ".yaml")
MAX_BYTES = 2 << 30
"""Most bytes of one dump; a larger file is not read."""
MAX_MEMORY = 32 << 30
"""Bytes of address space that a process that reads dumps may use; for a single dump,
``dump_reducer`` sets the limit."""
MAX_CHILDREN = 8
"""Most processes that read dumps side by side."""
DUMP_SECONDS = 60.0
"""Seconds that reading one dump may take; most take some milliseconds."""


class RecorderFiles(msgspec.Struct, kw_only=True):
    """One file a rank, and what was left out."""

    paths: dict[int, Path]
    ignored: list[str] = []
    """Files that were left out, with the reason."""
    failed: list[str] = []
    """Paths that were named but do not exist or cannot be dumps, with the reason."""
    others: list[dict[int, Path]] = []
    """Further complete sets of dumps of the same ranks under other names, such as another
    library's."""

    def unread(self, named: Sequence[str], read: Collection[int]) -> list[str]:
        """The files named on the command line that are no dump; ``read`` are the ranks whose
        dumps could be read."""
        dumps = {path: rank for rank, path in self.paths.items()}
        bad = [name for name in named if dumps.get(Path(name), -1) not in (-1, *read)]
        return [*self.failed, *(f"{name}: no dump can be read in it" for name in bad)]

    @property
    def world_size(self) -> int:
        """The number of ranks by the files' names: the highest rank plus one."""
        return max(self.paths) + 1

    @property
    def names(self) -> dict[int, str]:
        """The names of the files by rank."""
        return {rank: str(path) for rank, path in self.paths.items()}

    def written(self) -> dict[int, float]:
        """The time of each rank's file, in Unix seconds, except those that cannot be examined."""
        return {rank: stat.st_mtime for rank, path in self.paths.items() if (stat := _stat(path))}

    def dumps(self, *, whole: bool = False) -> Mapping[int, bytes]:
        """The dumps in their reduced form by rank, each read when it is looked up.

        The first look at a rank gives what ``read`` needs of it, unless the ``whole`` is wanted.
        """
        return _Lazy(self.paths, whole=whole)

    def explained(self, earlier: RecorderFiles | None) -> RecorderFacts:
        """What they show; ``earlier`` are dumps of the same ranks from some seconds before."""
        return explain(
            self.dumps(),
            names=self.names,
            world_size=self.world_size,
            earlier=earlier.dumps() if earlier is not None else None,
            written=self.written(),
        )

    def beside(self) -> list[Mapping[int, bytes]]:
        """The dumps of each further set, by rank."""
        return [_Lazy(paths, whole=False) for paths in self.others]


class _Lazy(Mapping[int, bytes]):
    """The dumps in their reduced form, so that a thousand are never in memory at once.

    Whoever looks a rank up for the first time gets the brief form, and later the whole one, unless
    ``whole`` is wanted at once. The ranks that follow are read meanwhile.
    """

    def __init__(self, paths: Mapping[int, Path], *, whole: bool) -> None:
        self._paths, self._whole = dict(sorted(paths.items())), whole
        self._left = iter(self._paths)
        self._ahead: dict[int, Future[bytes]] = {}
        self._seen: set[int] = set()
        workers = max(1, min(os.cpu_count() or 1, MAX_CHILDREN, len(paths)))
        self._most_ahead = 2 * workers
        self._pool = ThreadPoolExecutor(workers, "ray-sentinel-dumps")
        self._reducers: SimpleQueue[DumpReducer] = SimpleQueue()
        for _ in range(workers):
            self._reducers.put(DumpReducer(MAX_BYTES, MAX_MEMORY))
        self._end = weakref.finalize(self, _close, self._pool, self._reducers)

    def __getitem__(self, rank: int) -> bytes:
        path = self._paths[rank]
        if rank in self._seen:
            return _reduced(path, self._reducers, whole=True)
        self._seen.add(rank)
        if rank not in self._ahead:
            self._ahead[rank] = self._begin(rank)
        while len(self._ahead) <= self._most_ahead and (more := next(self._left, None)) is not None:
            if more not in self._ahead and more not in self._seen:
                self._ahead[more] = self._begin(more)
        return self._ahead.pop(rank).result()

    def _begin(self, rank: int) -> Future[bytes]:
        return self._pool.submit(_reduced, self._paths[rank], self._reducers, whole=self._whole)

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _reduced(path: Path, reducers: SimpleQueue[DumpReducer], *, whole: bool) -> bytes:
    """The form in which a dump travels: read by a child, for a pickle may ask for gigabytes, or
    for hours. Raises InputError."""
    try:
        regular(path)
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"is larger than {MAX_BYTES >> 30} GiB and was not read")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from error
    if is_reduced(data):
        return data
    reducer = reducers.get()
    try:
        return reducer.reduce(data, DUMP_SECONDS, "whole" if whole else "brief")
    finally:
        reducers.put(reducer)


def _close(pool: ThreadPoolExecutor, reducers: SimpleQueue[DumpReducer]) -> None:
    pool.shutdown(wait=True, cancel_futures=True)
    while not reducers.empty():
        reducers.get().close()


def find(paths: Sequence[str], prefix: str | None = None) -> RecorderFiles:
    """The dumps in files and folders named ``PREFIX<rank>``, with .json, .pickle or no suffix.

    Raises InputError if there is none, or more than one set of them.
    """
    ignored: list[str] = []
    failed: list[str] = []
    found: dict[Family, dict[int, Path]] = {}
    for path in _candidates(paths, ignored, failed):
        match = None if path.name.endswith(_NOT_DUMPS) else _NAME.match(path.name)
        if match is None or len(match["rank"]) > 7 or int(match["rank"]) >= MAX_RANKS:
            ignored.append(f"{path.name}: not named PREFIX<rank>")
        elif prefix is not None and match["prefix"] != prefix:
            ignored.append(f"{path.name}: another prefix than {prefix}")
        else:
            family = (match["prefix"], match["suffix"] or "")
            _add(found.setdefault(family, {}), int(match["rank"]), path)
    if not found and len(failed) == len(paths):
        raise InputError("; ".join(failed[:4]))
    if not found:
        raise InputError(
            f"no flight-recorder dumps in {', '.join(paths)}: they are files named PREFIX<rank>, "
            "such as _dump_0, with .json, .pickle or no suffix"
        )
    chosen, others = _choose(found, ignored)
    return RecorderFiles(paths=chosen, ignored=ignored, failed=failed, others=others)


def _candidates(paths: Sequence[str], ignored: list[str], failed: list[str]) -> Iterator[Path]:
    """The regular files; for each other one, the reason is noted."""

    def left_out(path: Path, why: str) -> None:
        ignored.append(f"{path.name}: {why}")

    for text in paths:
        try:
            if is_folder(text):
                yield from files_below(Path(text), left_out)
            else:
                yield _file(text)
        except InputError as error:
            failed.append(str(error))


def _file(name: str) -> Path:
    try:
        regular(name)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return Path(name)


def _add(ranks: dict[int, Path], rank: int, path: Path) -> None:
    other = ranks.get(rank)
    if other is None:
        ranks[rank] = path
    else:
        raise InputError(
            f"rank {rank} is there twice, {clean(str(other))} and {clean(str(path))}: give the "
            "folder of one set of dumps"
        )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _size(path: Path) -> int:
    stat = _stat(path)
    return stat.st_size if stat else 0


def _choose(
    found: dict[Family, dict[int, Path]], ignored: list[str]
) -> tuple[dict[int, Path], list[dict[int, Path]]]:
    """The largest set by name with every set that repeats none of its ranks; and the others. Sets
    whose names begin alike are put together first: they are of one recorder.

    Files that hold something count for more than empty ones, which may be marks of a script's, and
    of two sets alike the one that holds more. Single files of another prefix
    beside a real set are strays, not ranks.
    """
    found = _of_one_recorder(found)
    sizes = {family: [_size(path) for path in paths.values()] for family, paths in found.items()}

    def order(family: Family) -> tuple[int, int, int, Family]:
        filled = sum(map(bool, sizes[family]))
        return -filled, -len(found[family]), -sum(sizes[family]), family

    families = sorted(found, key=order)
    result = dict(found[families[0]])
    others: list[dict[int, Path]] = []
    for family in families[1:]:
        more = found[family]
        stray = family[0] != families[0][0] and len(more) == 1 < len(found[families[0]])
        if not stray and not result.keys() & more.keys():
            result |= more
            continue
        if not stray:
            others.append(dict(sorted(more.items())))
        ignored += [
            f"{path.name}: named {_pattern(family)}, the dumps are {_pattern(families[0])}"
            for path in more.values()
        ]
    return dict(sorted(result.items())), others


def _of_one_recorder(found: dict[Family, dict[int, Path]]) -> dict[Family, dict[int, Path]]:
    """The sets, without those whose ranks another with the same prefix lacks: these are in it."""
    joined: dict[Family, dict[int, Path]] = {}
    for (prefix, suffix), paths in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        beside = (more for family, more in joined.items() if family[0] == prefix)
        whole = next((more for more in beside if not more.keys() & paths.keys()), None)
        if whole is None:
            joined[prefix, suffix] = dict(paths)
        else:
            whole |= paths
    return joined


def _pattern(family: Family) -> str:
    return f"{family[0]}<rank>{family[1]}"
