# ruff: noqa: E501 - log lines are as long as they are
"""What a model wrote, and what a test provoked, is no failure of the process that prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage


def triage(tmp_path: Path, **files: str) -> Triage:
    for name, text in files.items():
        (tmp_path / f"{name}.log").write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


TRACEBACK = """Traceback (most recent call last):
  File "/home/user/solution.py", line 7, in <module>
    print(solve(int(input())))
ZeroDivisionError: division by zero
"""
STEPS = "".join(
    f"2026-11-27 10:{i:02d}:00,000 INFO trainer.py:12 -- step {i}/500 loss 1.234 4.2s/step\n"
    for i in range(1, 40)
)
OF_VERL = "".join(
    f"step:{i} - actor/grad_norm:0.21 - critic/score/mean:0.43 - timing_s/step:61.2\n"
    for i in range(1, 20)
)
SAMPLE = f"[prompt] user\nFix it.\n[response] It prints:\n{TRACEBACK}so guard it.\n[ground_truth] 4\n[score] 0.0\n"
CHAT = f"<|im_start|>assistant\n<think>It prints\n{TRACEBACK}</think>4<|im_end|>\n"
ONE_LINE = json.dumps(f"It fails:\n{TRACEBACK}Use try.")
TIMED_OUT = "".join(
    f"(WorkerDict pid={51230 + r}, ip=10.0.3.{r}) [rank{r}]:[E1127 10:51:02.123456 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    for r in range(1, 8)
)


def of_actor(text: str) -> str:
    return "".join(f"(TaskRunner pid=48211) {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        of_actor(OF_VERL + SAMPLE),
        of_actor(OF_VERL + SAMPLE.replace("[score] 0.0\n", "").replace("[ground", "\n[ground")),
        OF_VERL + CHAT,
        OF_VERL + f"output: I ran it:\n{TRACEBACK}So it fails.\n" + OF_VERL.splitlines()[-1],
        STEPS + f"2026-11-27 10:40:00,000 INFO rollout.py:8 -- step=39 completion: {ONE_LINE}\n",
        STEPS
        + f'{{"time":"2026-11-27T10:40:00Z","level":"INFO","event":"sample","text":{ONE_LINE}}}\n',
        STEPS
        + f"[2026-11-27 10:40:00] rollout.py:312 - First rollout sample: [{ONE_LINE}], label: 4\n",
    ],
    ids=["verl", "few marks", "chat", "step after", "info", "json", "list"],
)
def test_a_traceback_that_a_model_wrote_is_no_failure(text: str, tmp_path: Path) -> None:
    answer = triage(tmp_path, job=text)
    assert (answer.kind, answer.culprits) == ("unknown-death", ())


BOX = "".join(f"│ {line:60s} │\n" for line in ("ASSISTANT: it prints", *TRACEBACK.splitlines()))
OPENED = "2026-11-27 10:40:01,113 INFO tool.py:4 -- tool result: <tool_response>\n"
NEXT = "2026-11-27 10:40:02,113 INFO tool.py:4 -- asked again\n"


@pytest.mark.parametrize(
    "text",
    [
        BOX + "╰────────╯\n",
        "| step | completion | reward |\n| 30 | Traceback (most recent call last): ValueError: x | 0.0 |\n",
        OPENED + TRACEBACK + "</tool_response>\n",
        "2026-11-27 10:40:01,113 INFO tool.py:4 -- output:\n" + TRACEBACK + NEXT,
    ],
    ids=["box", "table", "tag", "logged"],
)
def test_a_traceback_that_is_shown_as_a_value_is_no_failure(text: str, tmp_path: Path) -> None:
    assert triage(tmp_path, job=STEPS + text).kind == "unknown-death"


@pytest.mark.parametrize(
    "text",
    [
        "completion: torch.OutOfMemoryError: CUDA out of memory means that the batch is large\n",
        '{"step": 30, "prompt": "NCCL watchdog timeout?", "completion": "Watchdog caught collective operation timeout means that a rank hangs"}\n',
        "[response] The story:\nKilled\nwas the king.\n[score] 0\n",
        "answer: use except KeyboardInterrupt\n[score] 0\n",
    ],
    ids=["named", "json", "between marks", "its first line"],
)
def test_an_error_in_the_words_of_a_model_is_no_failure(text: str, tmp_path: Path) -> None:
    assert triage(tmp_path, job=STEPS + text).kind == "unknown-death"


@pytest.mark.parametrize(
    "text",
    [
        '{"event": "torch.OutOfMemoryError: CUDA out of memory", "prompt": "Hello"}\n',
        "ERROR: completion: torch.OutOfMemoryError: CUDA out of memory\n",
        "output: torch.OutOfMemoryError: CUDA out of memory\n",
    ],
    ids=["before the field", "an error", "a program's output"],
)
def test_the_processs_own_error_beside_such_text_counts(text: str, tmp_path: Path) -> None:
    assert triage(tmp_path, job=STEPS + text).kind == "oom-gpu"


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/train.py", line 3, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/train.py", line 9, in step
    | ZeroDivisionError: division by zero
    +------------------------------------
"""
RICH = """╭───────── Traceback (most recent call last) ─────────╮
│ /app/train.py:71 in main                            │
│ ❱ 71 │   │   loss = step(batch)                     │
╰─────────────────────────────────────────────────────╯
ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize("text", [GROUP, RICH], ids=["group", "rich"])
def test_a_traceback_that_is_drawn_is_the_processs_own(text: str, tmp_path: Path) -> None:
    assert triage(tmp_path, job=STEPS + text).kind == "python-exception"


def test_what_ends_the_job_after_such_text_is_the_cause(tmp_path: Path) -> None:
    answer = triage(tmp_path, job=of_actor(OF_VERL + SAMPLE) + TIMED_OUT)
    assert (answer.kind, [who.rank for who in answer.culprits]) == ("nccl-timeout", [0])


@pytest.mark.parametrize(
    "text",
    [
        f"2026-11-27 10:40:01,113 ERROR train.py:44 -- Training failed: {TRACEBACK}",
        f"Exception in training loop: {TRACEBACK}",
        f'{{"time":"2026-11-27T10:40:00Z","level":"ERROR","message":"completion failed","exception":{ONE_LINE}}}\n',
        f"completion: 4\n{TRACEBACK}",
        f"completion: 4\n2026-11-27 10:40:01,113 INFO train.py:44 -- saved\n{TRACEBACK}[score] 1.0\n",
        f"{SAMPLE}{TRACEBACK}{SAMPLE}",
        TRACEBACK,
    ],
    ids=["logged", "printed", "json", "nothing after", "spoke in between", "between two", "bare"],
)
def test_the_processs_own_traceback_is_one(text: str, tmp_path: Path) -> None:
    answer = triage(tmp_path, job=STEPS + text)
    assert answer.kind == "python-exception"
    assert "ZeroDivisionError" in answer.summary


SESSION = "============================= test session starts =============================="
OOM = "E       raised as expected: torch.OutOfMemoryError: CUDA out of memory"


def test_errors_that_passed_tests_provoked_are_no_failures(tmp_path: Path) -> None:
    ended = "============ 212 passed, 3 skipped, 1 warning in 31.20s (0:00:31) ============"
    answer = triage(tmp_path, tests=f"{SESSION}\n{OOM}\n{ended}\n", job=STEPS)
    assert answer.kind == "unknown-death"


def test_errors_of_failed_tests_stay(tmp_path: Path) -> None:
    ended = "============ 1 failed, 211 passed in 31.20s ============"
    answer = triage(tmp_path, tests=f"{SESSION}\n{OOM}\n{ended}\n", job=STEPS)
    assert answer.kind == "oom-gpu"


def test_an_exception_that_glog_reports_is_read(tmp_path: Path) -> None:
    line = "F1127 10:40:12.140058     140 tpu_driver.cc:88] jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Core halted unexpectedly\n"
    answer = triage(tmp_path, job=STEPS + line)
    assert answer.kind == "python-exception"
    assert answer.exception is not None
    assert answer.exception.kind.endswith("XlaRuntimeError")
