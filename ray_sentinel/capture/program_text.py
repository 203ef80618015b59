"""Finds the ranks' current code locations in the source text of their programs.

The text is read as the process sees it, through ``/proc/<pid>/root`` where that is another file
system than ours. A file may be on a mount that hangs, have changed since the process began, or not
be Python at all: then its locations are left without a block.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec
import psutil

from ray_sentinel import regex as re
from ray_sentinel.bounded import Bounded
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.evidence.stacks.frames.blocks import Blocks, PythonSource
from ray_sentinel.evidence.stacks.frames.names import place
from ray_sentinel.evidence_file import may_read
from ray_sentinel.model.identity import ProcessId

PATIENCE = 1.0
"""Seconds for each batch of eight files of a capture, which are read in parallel."""
MAX_BYTES = 1_000_000
"""Most bytes of one file; a larger one is not read."""
MAX_FILES = 32
"""Most files kept in memory, parsed, at about 1 KB for each of their lines; any others are parsed
again each time."""

_STANDARD = re.compile(r"(^|/)lib/python3\.\d+/(?!site-packages|dist-packages)|(^|/)torch/")
"""Files of Python and PyTorch themselves: their loops are not those of the training."""


class ProgramFile(msgspec.Struct, frozen=True):
    """A file as it was read; ``identity`` is its device, inode, size (bytes) and time (ns)."""

    identity: tuple[int, int, int, int]
    data: bytes


class ProgramText:
    """Reads the files; unchanged ones are read and parsed only once."""

    def __init__(
        self,
        *,
        patience: float = PATIENCE,
        read: Callable[[str, int], ProgramFile] | None = None,
    ) -> None:
        """``patience``: seconds for the files of one capture. ``read`` is given a file's path and
        the process that runs it; ``read_program`` unless given."""
        self._read = read or read_program
        self._lock = threading.Lock()
        self._reading: Bounded[str, ProgramFile] = Bounded(patience)
        self._sources: OrderedDict[tuple[int, int, int, int], PythonSource | None] = OrderedDict()

    def add(self, runs: Mapping[ProcessId, Sequence[Traced]]) -> dict[ProcessId, list[Traced]]:
        """The traces of each process, with the blocks around their places if known."""
        with self._lock:
            wanted = {process: self._paths(process.pid, of) for process, of in runs.items()}
            readers = {
                path: process.pid for process, files in wanted.items() for path in files.values()
            }
            texts, _ = self._reading.run(
                {path: partial(self._read, path, pid) for path, pid in readers.items()}
            )
            sources = {path: self._source(text) for path, text in texts.items()}
            added = {}
            for process, of in runs.items():
                its = _of(process.pid, wanted[process], sources, texts)
                added[process] = [_with_blocks(run, its) for run in of]
            return added

    def _paths(self, pid: int, runs: Iterable[Traced]) -> dict[str, str]:
        """File as the traces name it → a path by which this process can open it."""
        root, cwd = self._root(pid), f"/proc/{pid}/cwd"
        return {
            name: f"{root}{path}" if os.path.isabs(path) else f"{cwd}/{path}"
            for run in runs
            for name, path in run.trace.sources.items()
            if path.endswith(".py") and not _STANDARD.search(path)
        }

    def _root(self, pid: int) -> str:
        root = f"/proc/{pid}/root"
        try:
            ours, its = os.stat("/"), os.stat(root)
        except OSError:
            return root
        return "" if (ours.st_dev, ours.st_ino) == (its.st_dev, its.st_ino) else root

    def _source(self, text: ProgramFile) -> PythonSource | None:
        if text.identity not in self._sources:
            try:
                self._sources[text.identity] = PythonSource(text.data)
            except ValueError:
                self._sources[text.identity] = None
            while len(self._sources) > MAX_FILES:
                self._sources.popitem(last=False)
        return self._sources.get(text.identity)


def _with_blocks(run: Traced, sources: Mapping[str, PythonSource]) -> Traced:
    blocks: dict[str, Blocks] = {}
    for frame in {frame for thread in run.trace.threads for frame in thread.frames}:
        source = None if frame.native or not frame.line else sources.get(frame.file)
        found = source.blocks(frame.function, frame.line) if source is not None else None
        if found is not None:
            blocks[place(frame)] = found
    trace = msgspec.structs.replace(run.trace, blocks=blocks)
    return msgspec.structs.replace(run, trace=trace) if blocks else run


def _of(
    pid: int,
    names: Mapping[str, str],
    sources: Mapping[str, PythonSource | None],
    texts: Mapping[str, ProgramFile],
) -> dict[str, PythonSource]:
    """File as this process's traces name it → its text, if that is what the process runs."""
    try:
        began = psutil.Process(pid).create_time()
    except psutil.Error:
        return {}
    return {
        name: source
        for name, path in names.items()
        if (source := sources.get(path)) is not None
        and texts[path].identity[3] / 1e9 <= began + 1.0
    }


def read_program(path: str, pid: int) -> ProgramFile:
    """The file, if the process that runs it may read it too: a link may lead anywhere. Raises
    OSError."""
    # A FIFO in the place of a program would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise OSError(f"{path}: no file of a program")
        if not may_read(status, pid):
            raise OSError(f"{path}: not to be read by process {pid}, which is said to run it")
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return ProgramFile(identity, file.read(MAX_BYTES))
