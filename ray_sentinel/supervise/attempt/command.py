"""The command line of an attempt with its placeholders replaced, and its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.errors import UsageError
from ray_sentinel.supervise.policy import ResumePoint

PLACE = re.compile(r"\{(checkpoint|step|attempt|bad_nodes)\}")
"""The placeholders that are replaced in a command, and in the entrypoint of a submitted job."""
LISTED = re.compile(r",\{bad_nodes\}|\{bad_nodes\},")
"""The placeholder of bad nodes within a list of the user's: if there are none, it goes with its
comma, so that no empty name remains."""
_IDLE = re.compile(r"-[^=\s]*=\{bad_nodes\}")
"""An option whose whole value is the bad nodes; it is left out if there are none."""


def resolved(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """The program's path. Raises UsageError if it does not exist, or may not be executed."""
    if not argv:
        raise UsageError("no command is given: ray-sentinel run [options] -- CMD ...")
    name = argv[0]
    path = environ.get("PATH")
    if found := shutil.which(name, path=path):
        return os.path.abspath(found)
    there = os.path.exists(name) if os.sep in name else shutil.which(name, os.F_OK, path)
    if os.path.isdir(name):
        raise UsageError(f"{name}: is a folder, no program")
    if there:
        raise UsageError(f"{name}: is not executable: chmod +x {name}, or name its interpreter")
    raise UsageError(f"{name}: there is no such program{'' if os.sep in name else ' on PATH'}")


def words_of(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The command as strings. Raises UsageError for anything other than a list of words."""
    if isinstance(command, str | bytes):
        raise UsageError(
            f"a command is a list of words, such as ['python', 'train.py'], and is {command!r}"
        )
    words = []
    for one in command:
        if not isinstance(one, str | os.PathLike):
            raise UsageError(
                f"a command's words are texts, and {one!r} is none: write {str(one)!r}"
            )
        words.append(os.fsdecode(one))
        if "\0" in words[-1]:
            raise UsageError(f"no word of a command may hold a zero byte, as {words[-1]!r} does")
    return words


def current_folder() -> Path:
    """The current folder. Raises UsageError if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current folder was removed: cd to one that is there") from None


def filled(
    argv: Sequence[str],
    attempt: int,
    checkpoint: ResumePoint | None,
    bad_nodes: Sequence[str] = (),
) -> list[str]:
    """``{checkpoint}``, ``{step}``, ``{attempt}`` and ``{bad_nodes}`` replaced in every argument.

    Without a checkpoint the first is empty, and the step 0. Bad nodes are hosts separated by
    commas; without any, an option that has no other value (``--exclude={bad_nodes}``) is left out.
    Other braces stay as they are.
    """
    values = values_of(attempt, checkpoint, bad_nodes)
    kept = [*argv[:1], *(one for one in argv[1:] if bad_nodes or not _IDLE.fullmatch(one))]
    if not bad_nodes:
        kept = [LISTED.sub("", one) for one in kept]
    return [PLACE.sub(lambda found: values[found[1]], one) for one in kept]


def values_of(
    attempt: int, checkpoint: ResumePoint | None, bad_nodes: Sequence[str]
) -> dict[str, str]:
    """The value of each placeholder."""
    return {
        "checkpoint": checkpoint.path if checkpoint else "",
        "step": str(checkpoint.step if checkpoint else 0),
        "attempt": str(attempt),
        "bad_nodes": ",".join(bad_nodes),
    }


def variables(
    job: str, attempt: int, checkpoint: ResumePoint | None, bad_nodes: Sequence[str] = ()
) -> dict[str, str]:
    """The environment variables that are set for the attempt."""
    told = {
        "RAY_SENTINEL_JOB": job,
        "RAY_SENTINEL_ATTEMPT": str(attempt),
        "RAY_SENTINEL_STEP": str(checkpoint.step if checkpoint else 0),
        "RAY_SENTINEL_BAD_NODES": ",".join(bad_nodes),
    }
    return {**told, "RAY_SENTINEL_CHECKPOINT": checkpoint.path} if checkpoint else told
