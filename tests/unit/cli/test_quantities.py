"""Numbers that are none, or senseless, are wrong usage, and the option is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from tests.support.event_files import event, framed


@pytest.fixture
def job(tmp_path: Path) -> str:
    """A job that can be diagnosed: its event file."""
    file = tmp_path / "events.out.tfevents.1.a"
    file.write_bytes(b"".join(framed(event(step)) for step in range(50)))
    return str(file)


def refused(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    try:
        code = main(line)
    except SystemExit as ended:  # argparse's way
        assert isinstance(ended.code, int)
        code = ended.code
    assert code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--deadline", "nan"),
        ("--deadline", "0"),
        ("--deadline", "soon"),
        ("--port", "-1"),
        ("--port", "65536"),
        ("--port", "http"),
        ("--heartbeat-timeout", "nan"),
        ("--checkpoint-period", "0"),
        ("--failed-checkpoint", "inf"),
        ("--window", "nan..inf"),
        ("--window", "0..1e400"),
        ("--window", "last-0m"),
        ("--crash-time", "nan"),
        ("--logs", "nowhere"),
    ],
)
def test_diagnose_refuses(
    capsys: pytest.CaptureFixture[str], job: str, option: str, value: str
) -> None:
    said = refused(capsys, "diagnose", job, f"{option}={value}")
    assert value.split(".")[0] in said


def test_the_logs_are_a_folder(capsys: pytest.CaptureFixture[str], job: str) -> None:
    assert "is a file" in refused(capsys, "diagnose", job, "--logs", job)


@pytest.mark.parametrize(
    "line",
    [
        ("status", "--interval=0"),
        ("status", "--interval=nan"),
        ("up", "--timeout=nan"),
        ("dump", "--timeout=-1"),
        ("doctor", "--deadline=inf"),
        ("prometheus", "view", ".", "--port=70000"),
    ],
)
def test_others_refuse_before_they_ask_anybody(
    capsys: pytest.CaptureFixture[str], line: tuple[str, ...]
) -> None:
    assert line[-1].split("=")[0] in refused(capsys, *line)


def test_what_makes_sense_is_taken(capsys: pytest.CaptureFixture[str], job: str) -> None:
    line = ["diagnose", job, "--deadline", "2.5", "--port", "0", "--heartbeat-timeout", "300"]
    assert main([*line, "--window", "last-5m", "--json"]) in (0, 1)


def test_a_host_name_cannot_drive_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loadavg").write_text("0.5 0.4 0.3 1/200 4711\n")
    assert main(["collect", "host", "--proc", str(tmp_path), "--host", "a\x1b[31m"]) == 0
    told = capfd.readouterr().out
    assert "hw_load1" in told
    assert "\x1b" not in told
