"""A progress bar on stderr for reading many bytes, where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, int, str], None]
_WORTH_IT = 64 << 20
"""Bytes to read from which a bar is shown."""


@contextmanager
def reading_bar() -> Iterator[Update | None]:
    """Yields a function (done, total, label) to call, or None where nobody watches.

    The bar shows up only for more than 64 MB.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from ray_sentinel.cli.terminal import Console

    bar = Progress(
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None)

    def update(done: int, total: int, label: str) -> None:
        if total >= _WORTH_IT:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        bar.stop()
