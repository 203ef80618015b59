"""The doctor's command on this machine alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

Results = dict[str, list[dict[str, str]]]
"""What each check said."""
Doctor = Callable[..., tuple[int, Results]]


def run_doctor(*arguments: str, **environ: str) -> tuple[int, Results]:
    """Exit code, and results by check."""
    ended = subprocess.run(
        [sys.executable, "-m", "ray_sentinel.cli.main", "doctor", "--local", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )
    found: Results = {}
    for result in json.loads(ended.stdout)["results"]:
        found.setdefault(result["check"], []).append(result)
    return ended.returncode, found
