"""Processes that start ranks, and so carry launcher variables without being ranks themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from ray_sentinel import regex as re
from ray_sentinel.progress.discovery.environment import ToldRank
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.processes import Process

_PROGRAMS = frozenset(
    {
        "torchrun",
        "accelerate",
        "accelerate-launch",
        "deepspeed",
        "ds",
        "colossalai",
        "horovodrun",
        "composer",
        "mpirun",
        "mpiexec",
        "srun",
        "ray-sentinel",
        # They start the trainer in an environment of its own, and wait for it.
        "conda",
        "mamba",
        "hatch",
        "pdm",
        "mlflow",
        "wandb",
    }
)
_MODULES = re.compile(
    r"^(torch\.distributed\.(run|launch|launcher.*|elastic.*)"
    r"|accelerate(\.commands.*)?"
    r"|deepspeed\.launcher\..*|composer\.cli.*|horovod\.runner.*|determined\.launch\..*"
    r"|ray_sentinel(\..*)?)$"
)
_RAY_MODULES = re.compile(r"^ray(\..*)?$")
_RAY_SYSTEM = re.compile(
    r"^ray::(IDLE|SPILL|RESTORE|DashboardAgent|RuntimeEnvAgent)|"
    r"^ray-dashboard-|/ray/(dashboard|autoscaler|_private|util/client)/"
)
# Options of the interpreter that take a value of their own.
_WITH_VALUE = frozenset({"-X", "-W", "-Q", "--check-hash-based-pycs"})


def is_launcher(process: Process) -> bool:
    """Whether its command line is that of a known launcher, or of Ray's own processes."""
    if is_rays(process):
        return True
    option, program = _program(process.arguments)
    if option == "-m":
        return _MODULES.match(program) is not None
    # A program that is not Python is known by its own name.
    itself = os.path.basename(process.arguments[0]) if process.arguments else ""
    return program in _PROGRAMS or itself in _PROGRAMS


def _launches(process: Process) -> bool:
    return is_launcher(process) and not is_rays(process)


def is_rays(process: Process) -> bool:
    """Whether it is one of Ray's own processes, which never assign ranks."""
    return is_rays_command(process.arguments)


def is_rays_command(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of one of Ray's own processes."""
    if _RAY_SYSTEM.search(" ".join(arguments)):
        return True
    option, program = _program(arguments)
    return _RAY_MODULES.match(program) is not None if option == "-m" else program == "ray"


def up_to_a_launcher(process: Process, table: Mapping[int, Process]) -> Iterator[Key]:
    """The ancestors from which it may have inherited variables, up to the nearest launcher that
    assigns ranks of its own."""
    for pid, start in process.lineage:
        above = table.get(pid)
        # Ray's workers are titled as Ray's own while nothing runs in them.
        if above is not None and above.start == start and _launches(above):
            return
        yield (pid, start)


def _program(arguments: Sequence[str]) -> tuple[str, str]:
    """``-m`` and the module that an interpreter runs, or "" and the name of its script."""
    index = 1
    while index < len(arguments):
        argument = arguments[index]
        if argument == "-m":
            return "-m", arguments[index + 1] if index + 1 < len(arguments) else ""
        if not argument.startswith("-"):
            return "", os.path.basename(argument)
        if argument == "-c":
            break
        index += 2 if argument in _WITH_VALUE else 1
    return "", ""


def is_launcher_of(above: ToldRank, below: ToldRank) -> bool:
    """Whether a process with the variables ``above`` is a launcher, judged by a descendant that has
    ``below``.

    Children inherit variables; one that has another rank by another scheme, or a local rank where
    the one above has none, was assigned it by the one above or by something in between.
    """
    differs = (above.rank, above.world_size) != (below.rank, below.world_size)
    if not differs:
        return False
    return above.source != below.source or (
        above.local_rank is None and below.local_rank is not None
    )
