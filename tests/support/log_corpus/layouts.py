# ruff: noqa: E501 - log lines are as long as they are
"""How a job's lines are laid down: one main log, a file a rank, or a harvested Ray tree."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from tests.support.log_corpus.job import PIDS, RANKS, Job, Line, node_of


def write_main(job: Job, root: Path) -> Path:
    """Everything in one file, as torchrun with ``[rankN]:`` prefixes; the kernel's log beside it."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "train.log").write_text(job.text(_torch))
    _kernel(job, root)
    return root if any(line.file for line in job.lines) else root / "train.log"


def write_driver(job: Job, root: Path) -> Path:
    """A Ray driver's log: ``(TrainerActor pid=..., ip=...)``."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "driver.log").write_text(job.text(_ray))
    _kernel(job, root)
    return root if any(line.file for line in job.lines) else root / "driver.log"


def write_ranks(job: Job, root: Path) -> Path:
    """``rank-N.log`` beside ``main.log``; some rotated and compressed."""
    root.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        text = "".join(
            f"{line.text}\n" for line in job.lines if line.rank == rank and not line.file
        )
        if rank == 6:
            middle = text.find("\n", len(text) // 2) + 1
            with gzip.open(root / "rank-6.log.1.gz", "wt") as file:
                file.write(text[:middle])
            text = text[middle:]
        (root / f"rank-{rank}.log").write_text(text)
    main = "".join(f"{line.text}\n" for line in job.lines if line.rank is None and not line.file)
    (root / "main.log").write_text(main)
    _kernel(job, root)
    return root


def write_ray_tree(job: Job, root: Path) -> Path:
    """``ray_logs/<host>/worker-*-<pid>.err`` and the head's raylet, with their chatter."""
    for rank in range(RANKS):
        folder = root / "ray_logs" / node_of(rank)
        folder.mkdir(parents=True, exist_ok=True)
        body = "".join(
            f"{line.text}\n" for line in job.lines if line.rank == rank and not line.file
        )
        name = f"worker-{'ab' * 27}{rank:02d}-01000000-{PIDS[rank]}.err"
        front = f":job_id:01000000\n:actor_name:TrainerActor\nRANK={rank}\n"
        (folder / name).write_text(front + body)
        raylet = "".join(
            f"[2025-03-10 09:{n // 60 % 60:02d}:{n % 60:02d},123 I 900 900] (raylet) node_manager.cc:525: "
            f"worker died or failed count={n} error=0\n"
            for n in range(400)
        )
        (folder / "raylet.out").write_text(raylet)
    main = "".join(f"{line.text}\n" for line in job.lines if line.rank is None and not line.file)
    (root / "job-driver-raysubmit_1.log").write_text(main)
    _kernel(job, root)
    return root


def _kernel(job: Job, root: Path) -> None:
    for name in {line.file for line in job.lines if line.file}:
        noise = "".join(
            f"[Mon Mar 10 01:{n // 60:02d}:{n % 60:02d} 2025] usb 1-1: reset {n}\n"
            for n in range(600)
        )
        body = "".join(f"{line.text}\n" for line in job.lines if line.file == name)
        (root / name).write_text(noise + body)


def _torch(line: Line) -> str:
    return f"[rank{line.rank}]: " if line.rank is not None and "[rank" not in line.text else ""


def _ray(line: Line) -> str:
    if line.rank is None:
        return ""
    ip = f", ip=10.0.0.{line.rank // 4 + 1}" if line.rank >= 4 else ""
    return f"(TrainerActor pid={PIDS[line.rank]}{ip}) "


LAYOUTS: dict[str, Callable[[Job, Path], Path]] = {
    "main": write_main,
    "driver": write_driver,
    "ranks": write_ranks,
    "ray-tree": write_ray_tree,
}
