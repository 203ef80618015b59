"""A real browser, without a window."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.parts import require


def rendered(url: str, folder: Path) -> str:
    """The document after its scripts ran, by a real Chromium."""
    command = [
        require("chromium"),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
        "--virtual-time-budget=4000",
        "--dump-dom",
        url,
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()
