"""``top`` as a command: when it draws nothing, what it says then, and on a real terminal."""

from __future__ import annotations

import os
import sys

import pytest

from ray_sentinel.cli.main import main
from tests.support.page_data import incident, status
from tests.support.pty_run import on_terminal
from tests.support.top_screen import served_page

TOP = [sys.executable, "-m", "ray_sentinel.cli.main", "top"]
ENVIRON = {**os.environ, "TERM": "xterm-256color"}


def test_in_a_pipe_it_names_the_command_for_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    assert "ray-sentinel status --watch" in capsys.readouterr().err


def test_programs_are_sent_to_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json"]) == 2
    assert "ray-sentinel status --json" in capsys.readouterr().out


def test_a_terminal_that_cannot_be_drawn_on() -> None:
    with on_terminal(TOP, {**ENVIRON, "TERM": "dumb"}) as shown:
        assert shown.ended() == 2
        assert "status --watch" in shown.text()


def test_without_textual_it_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['textual'] = None; "
        "from ray_sentinel.cli.main import main; sys.exit(main(['top']))"
    )
    with on_terminal([sys.executable, "-c", program], ENVIRON) as shown:
        assert shown.ended() == 3
        assert "pip install textual" in shown.text()


def test_a_wrong_link_is_said_and_nothing_drawn() -> None:
    with on_terminal([*TOP, "--url", "ftp://node"], ENVIRON) as shown:
        assert shown.ended() == 2
        assert "http://HOST:PORT" in shown.text()


def test_nobody_who_answers_is_said_and_nothing_drawn() -> None:
    with served_page(status) as (_, page):
        link = page.link
    with on_terminal([*TOP, "--url", link], ENVIRON) as shown:
        assert shown.ended() == 3
        assert shown.text().startswith("ray-sentinel: http://127.0.0.1:")


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_on_a_terminal_it_draws_and_ends_by_its_keys(key: str) -> None:
    with (
        served_page(status, lambda: (incident(),)) as (_, page),
        on_terminal([*TOP, "--url", page.link], ENVIRON) as shown,
    ):
        shown.until("HUNG.*rank 3 on node-1 is stopped")
        shown.press("2")
        shown.until("! rank 3")
        shown.press(key)
        assert shown.ended() == 0
