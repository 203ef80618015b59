"""The bar that ``diagnose`` and ``compare`` show while they work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ray_sentinel.cli.output import clean
from ray_sentinel.cli.terminal import Console

USUAL_QUERIES = 60
"""Families that a full diagnosis usually reads, by which the progress bar is scaled."""


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Callable[[str], None]]:
    """A bar on stderr that shows what is being read; nothing if nobody looks."""
    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=USUAL_QUERIES)

        def step(text: str) -> None:
            bar.update(task, description=clean(text), advance=1)

        yield step
