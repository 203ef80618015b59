"""From the bytes of one dump (pickle or JSON, any version) to plain data, without executing any
code.

PyTorch writes a dump as a protocol-2 pickle of dicts, lists, strings and numbers
(``c10d::FlightRecorder::dump``), or the same tree as JSON (``dump_json``). No class is needed for
either, so the unpickler here refuses every class, and with it every call.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from ray_sentinel.errors import InputError

# What a broken or hostile pickle makes the interpreter's own unpickler raise.
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


class ClassRefusedError(pickle.UnpicklingError):
    """A pickle that names a class or function, as one that runs code must do."""


def _refuse(module: str, name: str) -> NoReturn:
    raise ClassRefusedError(f"it asks for {module}.{name}, and a dump holds only plain data")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        _refuse(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise ClassRefusedError("it asks for a persistent object, and a dump holds only plain data")


class _SalvagingUnpickler(pickle._Unpickler):
    """The slow unpickler in Python, whose stack can be looked at after it failed."""

    def find_class(self, module: str, name: str) -> Any:
        _refuse(module, name)

    def leftovers(self) -> list[list[Any]]:
        """The stack's frames, outermost first, as they were when the bytes ended."""
        return [*getattr(self, "metastack", []), getattr(self, "stack", [])]


class RawDump(msgspec.Struct, frozen=True):
    """One dump's tree as it was written, and what is wrong with it."""

    data: dict[str, Any]
    problem: str = ""
    """Why only a part of the dump could be read; empty where all was."""


def load(data: bytes) -> RawDump:
    """The tree of one dump.

    A truncated pickle is read as far as it goes, and ``problem`` says so. Raises InputError that
    says what is wrong and what to do, but not the file's name, which the caller knows.
    """
    if not data.strip():
        raise InputError("is empty: the rank ended before it wrote anything, or the disk is full")
    if data[:1] == b"\x80":
        return _load_pickle(data)
    if data.lstrip()[:1] in (b"{", b"["):
        return RawDump(_tree(_load_json(data)))
    return _load_pickle(data)


def _load_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"is not whole JSON ({error}); let the rank dump again") from error


def _load_pickle(data: bytes) -> RawDump:
    try:
        # A buffer as large as the data saves a call per field.
        reader = io.BufferedReader(io.BytesIO(data), buffer_size=max(len(data), 1))
        tree = _PlainUnpickler(reader).load()
    except ClassRefusedError as error:
        raise InputError(f"was refused: {error}; do not open it with pickle.load") from error
    except _BROKEN as error:
        if data[:2] == b"\x80\x02" and (salvaged := _salvage(data)):
            return RawDump(
                salvaged,
                f"is cut short or damaged ({_why(error)}); what precedes the damage was used",
            )
        raise InputError(
            f"is neither a flight-recorder pickle nor JSON ({_why(error)}); let the rank dump again"
        ) from error
    return RawDump(_tree(tree))


def _why(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it asks for more memory than a dump of its size needs"
    return str(error) or type(error).__name__


def _tree(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        # The first versions wrote the entries alone.
        value = {"entries": [dict(row) for row in value]} if "profiling_name" in value[0] else {}
    if not isinstance(value, Mapping):
        raise InputError(
            f"holds a {type(value).__name__} where a flight-recorder dump holds a dict"
        )
    if not any(key in value for key in ("entries", "pg_status", "pg_config", "version")):
        raise InputError(
            "has none of the keys entries, pg_status, pg_config: not a flight-recorder dump"
        )
    return dict(value)


def _salvage(data: bytes) -> dict[str, Any]:
    """What a truncated pickle had built when its bytes ended: its counters come before its entries.

    The outermost frame holds the finished keys and values; the frame within it is the unfinished
    value of the last key.
    """
    unpickler = _SalvagingUnpickler(io.BytesIO(data))
    try:
        tree = unpickler.load()
    except _BROKEN:
        frames = unpickler.leftovers()
    else:
        return dict(tree) if isinstance(tree, Mapping) else {}
    frames = [frame for frame in frames if frame]
    if len(frames) < 2 or not isinstance(frames[0][0], dict):
        return {}
    flat = frames[1]
    pairs = zip(flat[0::2], flat[1::2], strict=False)
    result = {key: value for key, value in pairs if type(key) is str}
    if len(frames) > 2 and len(flat) % 2 == 0:
        _finish(result.get(flat[-2]), frames[2])
    # Entries come last: where they have begun, all counters are whole.
    return result if result.get("pg_status") and "entries" in result else {}


def _finish(value: Any, frame: list[Any]) -> None:
    """Put what is whole of an unfinished list's or dict's items into it."""
    if isinstance(value, list):
        value += [entry for entry in frame if _whole(entry)]
    elif isinstance(value, dict):
        pairs = zip(frame[0::2], frame[1::2], strict=False)
        value |= {key: item for key, item in pairs if type(key) is str and item}


def _whole(entry: Any) -> bool:
    return isinstance(entry, dict) and "profiling_name" in entry and "state" in entry
