"""Why the kernel does not let us trace a process, and what to do about it."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.capture.states import status_field
from ray_sentinel.kernel_files import yama_scope

_SYS_PTRACE = 19
"""The bit of CAP_SYS_PTRACE (``linux/capability.h``)."""
_REMEDY = "run the agent with CAP_SYS_PTRACE (in a container: --cap-add=SYS_PTRACE)"


def why_refused(pid: int, proc: str = "/proc") -> str:
    """Which permission is missing to trace ``pid``, in one sentence with the remedy."""
    if not os.path.exists(f"{proc}/{pid}"):
        return "the process was gone when the tool came"
    reasons = [reason for reason in _reasons(pid, proc) if reason]
    if reasons:
        return "ptrace was refused: " + "; ".join(reasons)
    return f"ptrace was refused for a reason that cannot be seen from here: {_REMEDY}"


def _reasons(pid: int, proc: str) -> list[str]:
    capable = has_sys_ptrace(proc)
    return [
        _other_namespace(pid, proc),
        "" if capable else _other_user(pid, proc),
        "" if capable else _yama(proc),
        _confinement(capable, proc),
    ]


def has_sys_ptrace(proc: str = "/proc") -> bool:
    """Whether we hold CAP_SYS_PTRACE in our own user namespace."""
    effective = status_field("self", "CapEff", proc)
    return bool(effective) and bool(int(effective, 16) >> _SYS_PTRACE & 1)


def _other_namespace(pid: int, proc: str) -> str:
    try:
        same = all(
            os.readlink(f"{proc}/{pid}/ns/{kind}") == os.readlink(f"{proc}/self/ns/{kind}")
            for kind in ("pid", "user")
        )
    except OSError:
        return ""  # we may not even ask: the reasons below say why
    if same:
        return ""
    return (
        "the process is in another container (PID or user namespace): run the agent in the same "
        "container as the ranks, or on the host with CAP_SYS_PTRACE"
    )


def _other_user(pid: int, proc: str) -> str:
    theirs = status_field(pid, "Uid", proc).split()
    ours = status_field("self", "Uid", proc).split()
    # Real, effective and saved: all must be our effective one.
    if not theirs or len(ours) < 2 or set(theirs[:3]) == {ours[1]}:
        return ""
    return (
        f"it belongs to user {theirs[0]}, we are user {ours[1]}: run as the same user, or {_REMEDY}"
    )


def _yama(proc: str) -> str:
    scope = yama_scope(Path(proc))
    if not scope:
        return ""
    meaning = {
        1: "only ancestors may trace: ray_sentinel.attach() in the rank lets us in by itself, "
        f"else set kernel.yama.ptrace_scope to 0, or {_REMEDY}",
        2: f"only CAP_SYS_PTRACE may trace: {_REMEDY}",
        3: "nobody may trace until the next boot: the stacks that the ranks write themselves "
        "(ray_sentinel.attach()) are all there is",
    }
    return f"kernel.yama.ptrace_scope is {scope}: {meaning.get(scope, _REMEDY)}"


def _confinement(capable: bool, proc: str) -> str:
    filtered = status_field("self", "Seccomp", proc) == "2"
    if not capable:
        maybe = " and a seccomp filter is active, which may forbid it" if filtered else ""
        return f"CAP_SYS_PTRACE is missing{maybe}: {_REMEDY}"
    if filtered:
        return "a seccomp filter forbids ptrace: use a profile that allows it (SYS_PTRACE)"
    return ""
