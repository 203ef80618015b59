"""The list of commands, the answer to a mistyped one, and what shells complete."""

from __future__ import annotations

import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.cli import commands
from ray_sentinel.cli.main import build_parser, main
from ray_sentinel.cli.overview import COMMANDS, GROUPS, CommandEntry
from ray_sentinel.text import CONTROL
from tests.support.page_data import HOSTILE


@pytest.mark.parametrize("entry", COMMANDS, ids=[entry.name for entry in COMMANDS])
def test_every_command_has_an_example_that_can_be_typed(entry: CommandEntry) -> None:
    words = shlex.split(entry.example.removeprefix("source <(").removesuffix(")"))
    assert words[:2] == ["ray-sentinel", entry.name]
    assert build_parser(entry.name).parse_args(words[1:]).command == entry.name


def test_every_command_is_listed() -> None:
    there = {info.name for info in pkgutil.iter_modules(commands.__path__)}
    assert {name for name in there if not name.startswith("_")} == {
        entry.name for entry in COMMANDS
    }


def test_help_shows_the_groups_in_order_and_all_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    for entry in COMMANDS:
        assert f"\n  {entry.name} " in text
    assert "$ ray-sentinel status --watch" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("statsu", "status"), ("incident", "incidents"), ("TOP", "top"), ("preflight", "doctor")],
)
def test_a_mistyped_command_is_guessed(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed, "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"did you mean {meant}?" in told.err


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "watch a job:" in told.err


@pytest.mark.parametrize(
    ("line", "help_of"),
    [(["--hepl"], "ray-sentinel"), (["status", "--jsn"], "ray-sentinel status")],
)
def test_a_mistyped_option_is_named_with_the_help_that_lists_all(
    line: list[str], help_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    said = capsys.readouterr().err
    assert f"unrecognized arguments: {line[-1]}: `{help_of} --help`" in said


@pytest.mark.parametrize("typed", ["xyzzy", HOSTILE, "", "a" * 100_000])
def test_what_is_like_no_command_is_only_refused(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    told = capsys.readouterr().err
    assert "there is no command" in told
    assert "did you mean" not in told
    assert not CONTROL.search(told)
    assert len(told) < 500


def test_bash_completes_commands_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    line = (
        f'source {script}; complete_as() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        "_shtab_ray_sentinel; echo ${COMPREPLY[@]}; }; "
        "complete_as ray-sentinel sta; complete_as ray-sentinel status --w"
    )
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["stacks status", "--watch"], ended.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for entry in COMMANDS:
        assert entry.name in text


@pytest.mark.parametrize("command", ["top", "status", "completion"])
def test_only_what_is_run_is_imported(command: str) -> None:
    program = (
        "import sys; from ray_sentinel.cli.main import build_parser; "
        f"build_parser({command!r}); print(*sys.modules)"
    )
    assert not {"textual", "shtab", "ray"} & _printed(program)


@pytest.mark.parametrize("line", [["--help"], ["--version"], []])
def test_the_list_of_commands_imports_none(line: list[str]) -> None:
    program = (
        "import atexit, sys; from ray_sentinel.cli.main import main; "
        f"atexit.register(lambda: print(*sys.modules)); main({line!r})"
    )
    loaded = _printed(program)
    assert "ray_sentinel.cli.overview" in loaded
    assert not [name for name in loaded if name.startswith("ray_sentinel.cli.commands.")]


@pytest.mark.parametrize("line", [["--json", "status"], ["--vrsion", "up", "--log-dir", "x"]])
def test_an_option_before_the_command_is_refused_by_name(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert f"unrecognized arguments: {line[0]}" in capsys.readouterr().err


def _printed(program: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return set(ended.stdout.split())
