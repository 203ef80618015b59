"""A libnvidia-ml.so.1 of ours, which answers what a script says; named by NVML_STAND_IN."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.parts import require

STAND_IN = Path(__file__).parent / "nvml_stand_in"


def build(folder: Path, *flags: str) -> Path:
    """Compile the stand-in into ``folder`` and give the folder."""
    compiler = require("cc")
    name = "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", *flags]
    command += [f"-Wl,-soname,{name}", "-o", str(folder / name), str(STAND_IN / "nvml.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return folder
