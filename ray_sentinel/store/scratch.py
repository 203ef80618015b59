"""A folder for what is needed only while we live, which is gone afterwards even if we are killed.

A child waits for its standard input to close, which the kernel does for whoever dies, and then
removes the folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_sentinel.process import end, spawn

_JANITOR = """
import os, shutil, sys, time
sys.stdin.buffer.read()
# Whoever else worked in it is dying at this moment, and may still write.
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """An empty folder among the temporary files, removed on leaving or when this process dies."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    janitor = spawn(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        death_signal=False,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and janitor.stdin is not None:
            janitor.stdin.close()  # something still writes there: the janitor has patience
        else:
            end(janitor)
