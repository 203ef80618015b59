"""``ray-sentinel run`` with a real training, and real trouble."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.coordinator_page import Page
from tests.support.living import alive
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

TRAIN = Path(__file__).parents[2] / "support/supervised_train.py"
BARE = [sys.executable, str(TRAIN), "", "30"]
"""The same without anything that is learned or saved."""
SECONDS = 150.0


class Job:
    """One supervised job in a folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.saved = tmp_path / "checkpoints"
        self.log = tmp_path / "log"
        self.folder = self.log / "run/job"
        self.started: list[subprocess.Popen[bytes]] = []
        self.environ = {**os.environ, "RAY_SENTINEL_LOG_DIR": str(self.log)}

    def start(
        self, *options: str, cmd: list[str] | None = None, **environ: str
    ) -> subprocess.Popen[bytes]:
        train = [sys.executable, str(TRAIN), str(self.saved), "30", "{checkpoint}"]
        command = [sys.executable, "-m", "ray_sentinel.cli.main", "run", "--job", "job", "--json"]
        command += ["--page", "", "--retry-delay", "0.2", "--checkpoint-dir", str(self.saved)]
        self.started.append(
            subprocess.Popen(
                [*command, *options, "--", *(train if cmd is None else cmd)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.environ, **environ},
            )
        )
        return self.started[-1]

    def run(self, *options: str, **more: Any) -> tuple[int, dict[str, Any], str]:
        """To its end: (exit code, result, what people saw)."""
        return self.end(self.start(*options, **more))

    def end(self, started: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any], str]:
        out, seen = started.communicate(timeout=SECONDS)
        return started.returncode, json.loads(out or b"{}"), seen.decode()

    def losses(self) -> dict[int, list[float]]:
        """Step → the losses that were printed for it, by attempt."""
        found: dict[int, list[float]] = {}
        for path in sorted(self.folder.glob("attempt-*/output.log")):
            for step, loss in re.findall(r"step (\d+) loss ([\d.]+)", path.read_text()):
                found.setdefault(int(step), []).append(float(loss))
        return found

    def state(self, attempt: int = 0) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / f"attempt-{attempt:04d}/state.json").read_text()))
        except (OSError, ValueError):
            return {}

    def until(self, look: Callable[[], Any], what: str) -> Any:
        return eventually(look, what, SECONDS, every=0.05)

    def until_step(self, step: int) -> None:
        self.until(lambda: self.losses().get(step), f"step {step}")

    def clean_up(self) -> None:
        for started in self.started:
            if started.poll() is None:
                started.kill()
                started.communicate(timeout=SECONDS)
        for path in self.folder.glob("attempt-*/state.json"):
            state = json.loads(path.read_text())
            if state.get("ended_at") is None and alive(state["keeper"]):
                os.kill(state["keeper"], signal.SIGKILL)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.clean_up()


def reference(tmp_path: Path) -> list[float]:
    """The losses of a training without trouble."""
    ended = subprocess.run(
        [sys.executable, str(TRAIN), str(tmp_path / "reference"), "30"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
        env={**os.environ, "PACE": "0"},
    )
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", ended.stdout)]


def test_after_a_crash_the_loss_curve_goes_on(job: Job, tmp_path: Path) -> None:
    code, result, seen = job.run(FAULTS="0:12:raise,1:23:kill")
    assert code == 0, seen
    assert (result["success"], result["final_step"], result["total_retries"]) == (True, 30, 2)
    assert result["time_lost_seconds"] > 0
    expected = reference(tmp_path)
    losses = job.losses()
    assert sorted(losses) == list(range(1, 31))
    assert all(loss == expected[step - 1] for step, found in losses.items() for loss in found)
    assert {step for step, found in losses.items() if len(found) == 2} == {11, 12, 21, 22, 23}
    assert "bad gradient" in seen
    assert "restart in" in seen


def test_a_hang_is_captured_and_then_restarted(job: Job) -> None:
    code, result, seen = job.run("--stagnation-threshold", "8", FAULTS="0:8:sleep")
    assert code == 0, seen
    assert (result["total_retries"], result["final_step"]) == (1, 30)
    stacks = [p.read_text() for p in (job.folder / "attempt-0000/hang").glob("pyspy_*")]
    assert any("wait_for_a_batch_that_never_comes" in text for text in stacks), seen
    assert "hang: no step after step 8" in seen


def test_a_corrupt_latest_checkpoint_is_passed_over(job: Job) -> None:
    code, result, seen = job.run(FAULTS="0:15:cut")
    assert code == 0, seen
    assert result["final_step"] == 30
    assert "step_15/model.pt: was cut off" in seen
    assert f"attempt 1 starts from {job.saved / 'step_10'}" in seen


def test_a_checkpoint_that_only_torch_finds_bad_is_left_out(job: Job) -> None:
    job.run(FAULTS="0:16:raise", cmd=[sys.executable, str(TRAIN), str(job.saved), "15"])
    import torch

    torch.save(
        {"model": {"other": torch.zeros(300)}, "optimizer": {}, "step": 15},
        job.saved / "step_15/model.pt",
    )
    code, result, seen = job.run()
    assert code == 0, seen
    assert result["total_retries"] == 1
    assert "does not load and is left out" in seen
    assert f"starts from {job.saved / 'step_10'}" in seen


def test_a_crash_loop_is_given_up(job: Job) -> None:
    code, result, seen = job.run("--max-retries", "2", cmd=BARE, FAULTS="*:3:random")
    assert code == 1, seen
    assert "given up after 2 restarts" in result["reason"]
    assert result["total_retries"] == 2


def test_the_same_exception_at_the_same_step_is_not_tried_a_third_time(job: Job) -> None:
    code, result, _ = job.run(cmd=BARE, FAULTS="*:3:raise")
    assert code == 1
    assert "same exception at step 3" in result["reason"]
    assert result["total_retries"] == 1


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "15"), (signal.SIGINT, "2")])
def test_signals_to_the_supervisor_end_the_command(job: Job, number: int, name: str) -> None:
    started = job.start(cmd=BARE, PACE="0.2")
    job.until_step(3)
    started.send_signal(number)
    code, result, seen = job.end(started)
    assert code == 128 + number, seen
    assert result["reason"] == f"stopped by signal {name}"
    state = job.state()
    assert state["ended_at"]
    assert not alive(state["child"])
    job.until(lambda: not alive(state["keeper"]), "the keeper goes once it has written the end")


def test_other_signals_are_passed_on(job: Job) -> None:
    started = job.start(cmd=BARE, PACE="0.1")
    job.until_step(3)
    started.send_signal(signal.SIGUSR1)
    code, _, seen = job.end(started)
    assert code == 0
    assert "USR1 was passed on" in seen


def test_a_killed_supervisor_takes_the_running_command_back(job: Job) -> None:
    started = job.start(cmd=BARE, PACE="0.2")
    job.until_step(4)
    before = job.state()
    started.kill()
    started.communicate(timeout=SECONDS)
    job.until_step(7)
    assert alive(before["child"]), "the command must not notice"
    code, result, seen = job.run(cmd=BARE)
    assert code == 0, seen
    assert "taking back attempt 0" in seen
    assert (result["final_step"], result["total_retries"]) == (30, 0)
    assert job.state()["child"] == before["child"]
    assert not list(job.folder.glob("attempt-0001"))


def test_a_command_that_ends_while_nobody_supervises_has_its_last_step(job: Job) -> None:
    started = job.start(cmd=BARE, PACE="0.05")
    job.until_step(4)
    started.kill()
    started.communicate(timeout=SECONDS)
    job.until(lambda: job.state().get("ended_at"), "the keeper notes the end")
    code, result, seen = job.run(cmd=BARE)
    assert code == 0, seen
    assert (result["final_step"], result["total_retries"]) == (30, 0)
    assert "step 29 " not in seen, "it was shown before"


def test_a_command_that_fails_while_nobody_supervises_is_restarted(job: Job) -> None:
    started = job.start(PACE="0.1", FAULTS="0:8:raise")
    job.until_step(4)
    started.kill()
    started.communicate(timeout=SECONDS)
    job.until(lambda: job.state().get("ended_at"), "the keeper notes the end")
    code, result, seen = job.run()
    assert code == 0, seen
    assert (result["final_step"], result["total_retries"]) == (30, 1)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(job: Job) -> None:
    started = job.start("--grace", "1", cmd=BARE, PACE="0.2", FAULTS="0:2:ignore")
    job.until_step(4)
    begun = time.monotonic()
    started.terminate()
    code, _, seen = job.end(started)
    assert code == 143, seen
    assert job.state()["signal"] == signal.SIGKILL
    assert time.monotonic() - begun < 30


def test_grandchildren_left_behind_are_ended(job: Job, tmp_path: Path) -> None:
    orphan = tmp_path / "orphan"
    code, _, seen = job.run(cmd=BARE, FAULTS="0:2:orphan,0:12:raise", ORPHAN=str(orphan))
    assert code == 0, seen
    assert not alive(int(orphan.read_text()))
    assert "left behind, and ended" in seen


def test_two_supervisors_of_one_job(job: Job) -> None:
    started = job.start(cmd=BARE, PACE="0.2")
    job.until_step(2)
    code, _, seen = job.run(cmd=BARE)
    assert code == 2
    assert f"pid {started.pid} supervises this job already" in seen
    started.terminate()
    job.end(started)


def test_a_command_that_is_missing_and_one_that_ends_at_once(job: Job) -> None:
    code, _, seen = job.run(cmd=["no-such-program-here"])
    assert code == 2
    assert "no such program" in seen
    code, result, _ = job.run(cmd=["true"])
    assert (code, result["success"]) == (0, True)
    code, result, _ = job.run("--max-retries", "1", cmd=["sh", "-c", "exit 3"])
    assert code == 1
    assert not result["success"]


@pytest.mark.parametrize("lost", ["", None], ids=["empty", "gone"])
def test_a_command_is_run_though_an_earlier_one_ended_and_its_ledger_is_lost(
    job: Job, tmp_path: Path, lost: str | None
) -> None:
    assert job.run(cmd=["true"])[0] == 0
    ledger, mark = job.folder / "ledger.json", tmp_path / "mark"
    ledger.unlink()
    if lost is not None:
        ledger.write_text(lost)
    code, _, seen = job.run(cmd=["touch", str(mark)])
    assert (code, mark.exists()) == (0, True), seen


def test_what_another_command_of_this_name_came_to_is_not_this_ones_end(
    job: Job, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    started = job.start(cmd=["sh", "-c", f"touch {mark}-begun; sleep 1"])
    job.until(lambda: Path(f"{mark}-begun").exists(), "it runs")
    started.kill()
    started.communicate(timeout=SECONDS)
    job.until(lambda: job.state().get("ended_at"), "the command has ended")
    code, _, seen = job.run(cmd=["touch", str(mark)])
    assert (code, mark.exists()) == (0, True), seen


def test_a_checkpoint_folder_that_is_empty_all_at_once_is_not_begun_anew(job: Job) -> None:
    started = job.start(FAULTS="0:12:raise,1:20:sleep")
    # The step is printed before it is saved.
    job.until((job.saved / "step_20/model.pt").exists, "step 20 is saved")
    shutil.rmtree(job.saved)
    job.saved.mkdir()
    os.kill(job.state(1)["child"], signal.SIGKILL)
    code, result, seen = job.end(started)
    assert code == 1, seen
    assert "the checkpoints have vanished: none is in" in result["reason"]


def test_a_command_that_writes_without_end_fills_no_disk(job: Job) -> None:
    flood = (
        "import sys\nfor _ in range(64): sys.stdout.write('x' * 999999 + chr(10))\nprint('the end')"
    )
    code, _, seen = job.run("--max-output-mib", "8", cmd=[sys.executable, "-c", flood])
    assert code == 0
    files = list((job.folder / "attempt-0000").glob("output*.log"))
    assert sum(path.stat().st_size for path in files) < 18 << 20
    assert seen.count("x") < 64 << 20
    assert (job.folder / "attempt-0000/output.log").read_text().endswith("the end\n")


def test_a_hang_that_the_sentinel_has_confirmed_and_captured(job: Job, page: Page) -> None:
    incident = {"id": "7", "job": "job", "kind": "host-stuck", "state": "explained",
                "summary": "rank 0 sleeps", "bundle": "/somewhere/bundle",
                "suspected_at": time.time() + 600}  # fmt: skip

    page.answer = lambda: [incident] if job.losses().get(8) and not job.state(1) else []
    code, result, seen = job.run("--page", page.link, FAULTS="0:8:sleep")
    assert code == 0, seen
    assert result["total_retries"] == 1
    assert "hang: rank 0 sleeps (incident 7)" in seen
    assert "the evidence is in /somewhere/bundle" in seen
