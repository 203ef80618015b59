"""The ways on which a job's text leaves a rank, a node, or us: masked on each."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.executor import notifier_of
from ray_sentinel.actors.coordinator.ray.actors import script
from ray_sentinel.actors.logs import MaskingFormatter
from ray_sentinel.actors.messages import NodeCapture, Sampled, pack_masked, unpack
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.config import Config, NotifyConfig
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import NodeLeft
from ray_sentinel.masking import mask
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc.processes import Process
from ray_sentinel.progress.rank.writer import MAX_WORDS, ProgressWriter
from ray_sentinel.supervise.notify.notices import Notice
from ray_sentinel.supervise.notify.notifier import Notifier
from tests.support.waiting import eventually

SECRET = "hunter2 of mine"


def test_last_words_in_the_rank_itself(tmp_path: Path) -> None:
    writer = ProgressWriter.open(RankIdentity(job="j", rank=0), [tmp_path])
    assert writer.path is not None
    # The cut would halve it.
    padding = "x" * (MAX_WORDS - 40)
    writer.last_words("exception", f"ValueError: {padding} password='{SECRET}' refused")
    data = writer.path.read_bytes()
    assert b"ValueError" in data
    assert b"hunter2" not in data
    writer.close()


def test_a_command_line_keeps_its_words() -> None:
    words = ("python", "train.py", "--token", SECRET, f"--password={SECRET}", "--lr=3")
    shown = Process(pid=1, start=1, parent=0, command="python", arguments=words).shown
    assert shown == "python train.py --token *** --password=*** --lr=3"


def test_a_tail_of_standard_error_that_begins_inside_of_a_secret(tmp_path: Path) -> None:
    log, proc = tmp_path / "rank.err", tmp_path / "proc"
    (proc / "7/fd").mkdir(parents=True)
    os.symlink(log, proc / "7/fd/2")
    log.write_text("password='hunter2")
    outputs = LastOutput(proc, patience=30.0)
    outputs.note([(7, 1)])
    with log.open("a") as file:
        file.write(" of mine'\nValueError: now\n")
    assert outputs.read((7, 1)) == "***'\nValueError: now\n"


def test_what_an_agent_sends() -> None:
    sent = pack_masked(Sampled(problems=(f"gdb --token '{SECRET}' failed",)))
    assert unpack(sent, Sampled).problems == ("gdb --token '***' failed",)
    assert unpack(pack_masked(NodeCapture(files={"a": b"1"})), NodeCapture).files == {"a": b"1"}


def test_what_the_coordinator_reads_itself(tmp_path: Path) -> None:
    loop = EngineLoop(Engine(), SteadyClock(FakeClock()), lambda action: None, tmp_path, 1 << 20)
    loop.feed(NodeLeft(time=1.0, node_id="n", reason=f"died: password={SECRET!r}"))
    loop.close()
    assert "died: password='***'" in str(event_log.read(tmp_path)[1])
    assert b"hunter2" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_our_own_logs() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "token=%r", (SECRET,), None)
    assert MaskingFormatter("%(message)s").format(record) == "token='***'"


def test_a_job_is_not_named_after_a_variable() -> None:
    assert script("HF_TOKEN=abc123 python -u train.py") == "train"


def test_a_notice_and_what_is_said_of_a_receiver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told, script = tmp_path / "told", tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat > {told}.part\nmv {told}.part {told}\n")
    script.chmod(0o755)
    notice = Notice(
        key="k",
        event="failed",
        job="j",
        text=f"password={SECRET!r}",
        time=1.0,
        details={"token": "abc123"},
    )
    to_command = Notifier(NotifyConfig(command=str(script)))
    to_command.notify(notice)
    eventually(told.exists, "the notice")
    to_command.close()
    assert "hunter2" not in told.read_text()
    assert "abc123" not in told.read_text()
    nobody = NotifyConfig(webhook="http://127.0.0.1:9/in/a-path-of-ours?code=b")
    to_nobody = Notifier(nobody, delays=())
    to_nobody.notify(notice)
    eventually(lambda: to_nobody.problem, "the webhook refuses")
    to_nobody.close()
    assert "127.0.0.1" in to_nobody.problem
    assert "a-path-of-ours" not in to_nobody.problem + caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "--notify-apprise slack://TokenA/TokenB1234567/TokenC",
        "RAY_SENTINEL_NOTIFY__APPRISE=pagerduty://KEYKEYKEY123@TokenB1234567",
        "apprise = 'msteams://TokenA/TokenB1234567/x tgram://TokenC/1'",
        '{"apprise": "discord://1234/TokenB1234567"}',
    ],
)
def test_an_address_of_apprise_is_masked_wherever_it_is_set(text: str) -> None:
    assert not any(word in mask(text) for word in ("TokenA", "TokenB1234567", "TokenC"))


def test_without_apprise_the_coordinator_tells_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    section = NotifyConfig(webhook="http://127.0.0.1:9/", apprise="slack://TokenA/TokenB/TokenC")
    told = notifier_of(Config(notify=section))
    assert told.notify(Notice(key="1", event="confirmed", job="j", text="t", time=1.0))
    told.close(0.0)
    assert "pip install 'ray-sentinel[notify]'" in caplog.text
    assert "TokenA" not in caplog.text
