"""Dumps that a watchdog left, where the wall clock is set after they were written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stepped_clock import SteppedClock

pytestmark = pytest.mark.integration

HOUR = 3600
AGENT = """
import os, struct, subprocess, sys, time
from pathlib import Path
from ray_sentinel.capture.recorder_dumps import NoDumpError, Recorders, read_dump
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.proc.proc_stat import parse_stat

folder, step = Path(sys.argv[1]), int(sys.argv[2])
recorders = Recorders()

def write(what):
    # The kernel's own clock is not set: the file gets the time that it would.
    (folder / "fr_7").write_text(what)
    os.utime(folder / "fr_7", (time.time(), time.time()))

def find():
    stat = parse_stat(Path(f"/proc/{rank.pid}/stat").read_bytes())
    process = ProcessId(host="h", pid=rank.pid, start=stat.start)
    try:
        found = Rank(id=RankId(job="j", attempt=0, rank=7), process=process, node="n")
        return read_dump(recorders.find(found, 0.1)).decode()
    except NoDumpError:
        return "none"

write("of another run")
time.sleep(3.0)  # more than a file server's clock may be behind
environ = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_"}
rank = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
rank.stdout.readline()
before = find()
with open(os.environ["STEPPED_CLOCK_FILE"], "r+b") as clock:
    clock.write(struct.pack("l", step))
told = [before, find()]
write("its own")
told.append(find())
with open(os.environ["STEPPED_CLOCK_FILE"], "r+b") as clock:
    clock.write(struct.pack("l", -step))
told.append(find())
rank.kill()
rank.wait()
print(*told, sep=",")
"""


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_makes_no_dump_newer_or_older(tmp_path: Path, step: int) -> None:
    clock = SteppedClock(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", AGENT, str(tmp_path), str(step)],
        env={**os.environ, **clock.environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.strip() == "none,none,its own,its own", ended.stderr
