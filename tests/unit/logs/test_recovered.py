# ruff: noqa: E501 - log lines are as long as they are
"""Messages that somebody got over: an engine that waits and works on, a number that came back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage


def triage(tmp_path: Path, text: str, **more: str) -> Triage:
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    for name, other in more.items():
        (tmp_path / f"{name}.log").write_text(other, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


def waits(minute: int, engine: int = 0) -> str:
    return f"(EngineCore_DP{engine} pid=47415) INFO 05-01 10:{minute:02d}:27 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation).\n"


def speed(minute: int, tokens: float, engine: int = 0) -> str:
    return f"(APIServer pid=47275) INFO 05-01 10:{minute:02d}:39 [loggers.py:127] Engine {engine:03d}: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {tokens} tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.7%, Prefix cache hit rate: 0.0%\n"


def rests(minute: int, engine: int = 0) -> str:
    return speed(minute, 0.0, engine).replace("Running: 2", "Running: 0")


WAITING = "".join(waits(minute) for minute in range(1, 9))
STARTED = "(APIServer pid=7) INFO:     Application startup complete.\n"
SGLANG_RESTS = "[2025-05-01 10:07:00 TP0] Decode batch. #running-req: 0, #token: 0, token usage: 0.00, gen throughput (token/s): 0.00, #queue-req: 0\n"
DONE = 'INFO:     10.0.0.1:1234 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
UNWELL = "[2025-05-01 10:0{0}:00] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 10:00:00. last_heartbeat time: 09:59:00\n"
DECODES = "[2025-05-01 10:07:00 TP0] Decode batch. #running-req: 3, #token: 1234, token usage: 0.01, gen throughput (token/s): {0}, #queue-req: 0\n"
WATCHDOG = "[2025-05-01 10:01:00 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"


@pytest.mark.parametrize(
    "text",
    [
        WAITING + speed(9, 31.2),
        "".join(waits(m) + speed(m, 0.4) for m in range(1, 19)),
        WAITING + DONE,
        WAITING + speed(9, 31.2) + waits(10) + waits(11),
        "".join(speed(m % 60, 0.0) for m in range(90)) + WAITING + speed(9, 31.2),
        "".join(UNWELL.format(m) for m in range(5)) + DECODES.format(95.12),
        WATCHDOG + DECODES.format(0.5),
        WAITING + STARTED,
        WAITING + rests(9),
        "".join(UNWELL.format(m) for m in range(5)) + SGLANG_RESTS,
    ],
    ids=[
        "after",
        "between",
        "answered",
        "seldom since",
        "idle before",
        "sglang",
        "watchdog",
        "started",
        "at rest",
        "sglang at rest",
    ],
)
def test_an_engine_that_works_on_does_not_hang(text: str, tmp_path: Path) -> None:
    answer = triage(tmp_path, text)
    assert answer.kind == "unknown-death"
    assert {echo.kind for echo in answer.echoes} == {"survived"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (speed(0, 30.0) + "".join(waits(m) + speed(m, 0.0) for m in range(1, 9)), "hang"),
        (waits(1) + speed(2, 31.2) + "".join(waits(m) for m in range(3, 9)), "hang"),
        ("".join(waits(m) + speed(m, 31.2, engine=1) for m in range(1, 19)), "hang"),
        ("".join(UNWELL.format(m) for m in range(5)) + DECODES.format("0.00"), "engine-stalled"),
        (DECODES.format(95.12) + WATCHDOG, "engine-stalled"),
        (STARTED + rests(0) + WAITING, "hang"),
        ("".join(waits(m) + rests(m, engine=1) for m in range(1, 19)), "hang"),
    ],
    ids=[
        "no tokens",
        "worked before",
        "another engine works",
        "sglang",
        "watchdog",
        "rested before",
        "another rests",
    ],
)
def test_an_engine_that_does_not_work_hangs(text: str, kind: str, tmp_path: Path) -> None:
    assert triage(tmp_path, text).kind == kind


def test_the_engines_work_may_stand_in_its_servers_file(tmp_path: Path) -> None:
    assert triage(tmp_path, WAITING, server=speed(9, 31.2)).kind == "unknown-death"
    assert triage(tmp_path, WAITING, server=speed(0, 31.2)).kind == "hang"


def test_waits_of_an_engine_are_no_answer_to_a_start_that_does_not_end(tmp_path: Path) -> None:
    loads = "(Worker_TP0 pid=120) INFO 05-01 10:00:01 [gpu_model_runner.py:2602] Starting to load model x/y...\n"
    loads += (
        "Loading safetensors checkpoint shards:   1% Completed | 1/163 [00:41<1:51:02, 41.12s/it]\n"
    )
    text = loads + "".join(waits(minute) for minute in range(2, 58))
    answer = triage(tmp_path, text)
    assert (answer.kind, answer.phase) == ("startup-stuck", "model-load")
    assert triage(tmp_path, text + STARTED).kind != "startup-stuck"


def step(number: int, loss: str = "2.0", norm: str = "1.0") -> str:
    return f" [2025-05-01 10:{number // 60:02d}:{number % 60:02d}] iteration {number:8d}/  500000 | elapsed time per iteration (ms): 1000.0 | lm loss: {loss} | loss scale: 1.0 | grad norm: {norm} |\n"


GOOD = "".join(step(n) for n in range(1, 40))
SAID = "2025-05-01 10:00:40,000 ERROR grad norm is nan at step 40\n"
HF = "{{'loss': '0.5', 'grad_norm': '{0}', 'learning_rate': '1e-05', 'epoch': '{1}'}}\n"
VERL = "step:{1} - actor/pg_loss:0.1 - actor/grad_norm:{0} - timing_s/step:10.0\n"
BAR = "Training: {1}%|##  | {1}/100 [10:00<20:00, 6.1s/it, loss=0.5, grad_norm={0}]\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "".join(step(n, norm="nan") for n in range(40, 60)),
        GOOD + "".join(step(n, norm="inf") for n in range(40, 60)),
        "".join(HF.format("1.0" if n < 40 else "nan", n / 100) for n in range(60)),
        "".join(VERL.format("1.0" if n < 40 else "nan", n) for n in range(60)),
        "".join(BAR.format("1.0" if n < 40 else "nan", n) for n in range(60)),
        GOOD + SAID + "".join(step(n, loss="nan") for n in range(40, 60)) + "Killed\n",
    ],
    ids=["nan", "inf", "transformers", "verl", "bar", "said, and the loss too"],
)
def test_a_norm_that_stays_no_number(text: str, tmp_path: Path) -> None:
    assert triage(tmp_path, text).kind == "nan-loss"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (GOOD + step(40, norm="nan") + "".join(step(n) for n in range(41, 60)), "unknown-death"),
        (GOOD + step(40, norm="nan"), "unknown-death"),
        (GOOD + step(40, norm="nan") + "".join(step(n) for n in range(41, 60)) + "Killed\n", "signal-kill"),
        (GOOD + SAID + "".join(step(n) for n in range(41, 60)) + "Killed\n", "signal-kill"),
        (GOOD + step(40, loss="nan") + "".join(step(n) for n in range(41, 60)), "unknown-death"),
    ],
    ids=["passed", "the last one", "passed, then killed", "said, and passed", "a loss that passed"],
)  # fmt: skip
def test_one_number_that_passed_is_no_cause(text: str, kind: str, tmp_path: Path) -> None:
    assert triage(tmp_path, text).kind == kind


RUINED = GOOD + "".join(step(n, norm="nan") for n in range(40, 60))
CANCELLED = "slurmstepd: error: *** JOB 4410 ON n1 CANCELLED AT 2025-05-01T10:01:00 ***\n"
LOST = "[rank1]: torch.distributed.DistBackendError: NCCL error: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"


def test_whoever_cancels_a_job_without_numbers_ends_what_was_ruined(tmp_path: Path) -> None:
    answer = triage(tmp_path, RUINED + CANCELLED)
    assert (answer.kind, answer.outcome, answer.underlying) == ("nan-loss", "stopped", "cancelled")
    assert "step 40" in answer.summary
    assert "the job was cancelled" in answer.summary
    assert triage(tmp_path, GOOD + CANCELLED).kind == "cancelled"


@pytest.mark.parametrize(
    ("end", "kind"),
    [(LOST, "transport-lost"), ("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n", "oom-gpu")],
    ids=["lost", "memory"],
)  # fmt: skip
def test_numbers_lost_before_another_failure_are_told_beside_it(
    end: str, kind: str, tmp_path: Path
) -> None:
    answer = triage(tmp_path, RUINED + end)
    assert (answer.kind, answer.underlying) == (kind, "nan-loss")
    assert "step 40: gradient norm nan" in answer.summary
    assert any("nan" in line.note or "no numbers" in line.note for line in answer.evidence)
    assert triage(tmp_path, GOOD + end).underlying == ""


SERVES = "".join(speed(minute, 31.2) for minute in range(2, 58))
LOADS = "(Worker_TP0 pid=120) INFO 05-01 10:00:01 [gpu_model_runner.py:2602] Starting to load model x/y...\n"
SHUT_DOWN = "(APIServer pid=7) INFO:     Shutting down\n(APIServer pid=7) INFO:     Waiting for application shutdown.\n(APIServer pid=7) INFO:     Application shutdown complete.\n(APIServer pid=7) INFO:     Finished server process [7]\n"


def test_an_engine_that_works_to_the_end_of_its_log_did_not_die(tmp_path: Path) -> None:
    for text in (LOADS + STARTED + SERVES, WAITING + speed(9, 31.2) + DONE, STARTED + rests(3)):
        answer = triage(tmp_path, text)
        assert (answer.kind, answer.outcome, answer.playbook) == ("unknown-death", "unknown", "")
        assert "worked to the end of the log" in answer.summary
    silent = triage(tmp_path, LOADS + STARTED + speed(2, 31.2) + "2025-05-01 10:59:00,000 INFO x\n")
    assert silent.kind == "hang"


def test_an_engine_at_work_that_somebody_ended_did_not_hang(tmp_path: Path) -> None:
    ended = CANCELLED.replace("10:01:00", "10:58:00")
    assert triage(tmp_path, LOADS + STARTED + SERVES + ended).kind == "cancelled"


def test_a_server_that_was_shut_down_ended_well(tmp_path: Path) -> None:
    answer = triage(tmp_path, STARTED + SERVES + SHUT_DOWN)
    assert (answer.kind, answer.outcome, answer.playbook) == ("completed", "completed", "")
    assert "shut down" in answer.summary
    assert triage(tmp_path, STARTED + SHUT_DOWN + STARTED + rests(9)).kind == "unknown-death"
    assert triage(tmp_path, GOOD + STARTED + SERVES + SHUT_DOWN).kind != "completed"


FAILED_REQUEST = """ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/venv/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
    result = await app(
anyio.EndOfStream
"""


def test_a_request_that_failed_ends_no_server_that_answers_on(tmp_path: Path) -> None:
    served = "".join(speed(minute, 31.0) for minute in range(10))
    answer = triage(tmp_path, STARTED + served + FAILED_REQUEST + served)
    assert (answer.kind, answer.culprits) == ("unknown-death", ())
    assert triage(tmp_path, STARTED + served + FAILED_REQUEST).kind == "python-exception"


def test_an_engine_that_failed_is_not_saved_by_another_one_that_works_on(tmp_path: Path) -> None:
    failed = "".join(
        f"(EngineCore_DP1 pid=9) ERROR 05-01 10:30:12 [core.py:710] {line}\n"
        for line in FAILED_REQUEST.splitlines()[1:]
    )
    others = "".join(speed(minute, 31.0, engine=0) for minute in range(10))
    assert triage(tmp_path, STARTED + others + failed + others).kind == "python-exception"
