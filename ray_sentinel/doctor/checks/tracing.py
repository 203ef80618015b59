"""Stacks can be taken when something hangs: py-spy is installed and permitted, cuda-gdb is
installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ray_sentinel import process
from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import yama_scope
from ray_sentinel.progress.proc.tracing import may_trace


class TracingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node can do."""

    py_spy: str
    """Path of py-spy; empty if it is missing."""
    allowed: bool | None
    """Whether the kernel lets us look into another process; None if that could not be found out."""
    yama: int | None
    """The value of ``kernel.yama.ptrace_scope``; None if there is no Yama."""
    cuda_gdb: bool
    gpus: bool


class TracingCheck(Check[TracingFacts]):
    """Tries it on a child that sleeps."""

    name = "tracing"
    about = "stacks of a hanging rank can be taken"
    facts = TracingFacts

    def look(self, plan: RunPlan, here: Here) -> TracingFacts:
        """Start a sleeping child, and ask the kernel whether we may look into it."""
        beside = Path(sys.executable).with_name("py-spy")
        return TracingFacts(
            py_spy=str(beside) if beside.exists() else shutil.which("py-spy") or "",
            allowed=_try(here.proc),
            yama=yama_scope(here.proc),
            cuda_gdb=shutil.which("cuda-gdb") is not None,
            gpus=shutil.which("nvidia-smi") is not None,
        )

    def judge(self, case: CheckInput[TracingFacts]) -> Iterable[CheckResult]:
        """Warnings only: a run works without them, but its hangs cannot be explained."""
        found = [r for host, facts in case.seen.items() for r in _of_node(host, facts)]
        yield from found or [ok("py-spy may look into processes")]


def _of_node(host: str, facts: TracingFacts) -> Iterator[CheckResult]:
    if not facts.py_spy:
        yield warning("py-spy is missing: no stacks", "pip install py-spy", host)
    if facts.allowed is False:
        scope = "" if facts.yama is None else f" (kernel.yama.ptrace_scope is {facts.yama})"
        yield warning(
            f"this container may not look into other processes{scope}",
            "add the capability SYS_PTRACE to the pod's securityContext, or set "
            "kernel.yama.ptrace_scope=0; ray_sentinel.attach() in the ranks permits it to the "
            "agent of the same user",
            host,
        )
    elif facts.yama == 1 and os.geteuid() != 0:
        yield warning(
            "kernel.yama.ptrace_scope is 1: only ancestors may look into a process",
            "add SYS_PTRACE, or call ray_sentinel.attach() in the ranks: it permits it",
            host,
        )
    if facts.gpus and not facts.cuda_gdb:
        yield warning(
            "cuda-gdb is missing: a kernel that hangs on a GPU will not be named",
            "install cuda-gdb of the CUDA toolkit (Debian: nvidia-cuda-gdb)",
            host,
        )


def _try(proc: Path) -> bool | None:
    child = process.spawn([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    try:
        return may_trace(child.pid, proc)
    finally:
        process.end(child)
