"""What a rank can report about itself without a debugger: Python stacks, flight recorder."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

import msgspec

from ray_sentinel.progress.requests import RECORDER_JSON_ANSWER, RECORDER_PICKLE_ANSWER

MAX_FRAMES = 256
"""Most frames kept of each thread: the innermost ones."""


class AnswerError(Exception):
    """There is nothing to return; the message says why."""


def stacks() -> bytes:
    """All Python threads of this process, as ``py-spy dump --json`` would print them.

    ``active`` and ``owns_gil`` are null: only the thread that takes the stacks is running.
    """
    threads = {thread.ident: thread for thread in threading.enumerate()}
    shown = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        shown.append(
            {
                "pid": os.getpid(),
                "thread_id": ident,
                "thread_name": thread.name if thread is not None else None,
                "os_thread_id": thread.native_id if thread is not None else None,
                "active": None,
                "owns_gil": None,
                "frames": _frames(frame),
            }
        )
    return msgspec.json.encode(shown)


def _frames(frame: FrameType | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        found.append(
            {
                "name": code.co_name,
                "filename": code.co_filename,
                "module": None,
                "short_filename": os.path.basename(code.co_filename),
                "line": frame.f_lineno or 0,
                "locals": None,
            }
        )
        frame = frame.f_back
    return found


def flight_recorder(modules: Mapping[str, ModuleType] | None = None) -> dict[str, bytes]:
    """PyTorch's flight recorders, by the name of the answer: NCCL's as the pickle that its own
    watchdog would write, those of other backends as JSON.

    Nothing is imported: a process without torch has no recorder. Raises AnswerError.
    """
    loaded = sys.modules if modules is None else modules
    bindings: Any = loaded.get("torch._C._distributed_c10d")
    if bindings is None:
        core = getattr(loaded.get("torch"), "_C", None)
        bindings = getattr(core, "_distributed_c10d", None)
    if bindings is None:
        raise AnswerError("torch.distributed is not loaded in the process")
    found: dict[str, bytes] = {}
    problems: list[str] = []
    for function, answer in (
        ("_dump_nccl_trace", RECORDER_PICKLE_ANSWER),
        ("_dump_fr_trace_json", RECORDER_JSON_ANSWER),
    ):
        dump = getattr(bindings, function, None)
        if dump is None:
            continue
        try:
            found[answer] = bytes(dump())
        except (RuntimeError, TypeError, ValueError) as error:
            problems.append(f"{function}: {error}")
    if not found:
        why = "; ".join(problems) or "this PyTorch has no flight recorder"
        raise AnswerError(f"no flight recorder: {why}")
    return found
