"""Modules of ours run from any script, whatever lies beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_what_lies_beside_a_training_s_script_is_not_taken_for_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("raise SystemExit('a module of the training was run')")
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess, sys\n"
        "from ray_sentinel.process import python_module\n"
        "sys.exit(subprocess.run(python_module('ray_sentinel.http.access')).returncode)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
