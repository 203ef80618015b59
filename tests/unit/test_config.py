"""The configuration: where it comes from, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.config import (
    AgentConfig,
    CaptureConfig,
    Config,
    absolute,
    load,
    safe_name,
    to_json,
)
from ray_sentinel.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    file = folder / "sentinel.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load(environ={}) == Config()


def test_arguments_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'job = "file"\n[hang]\nsilence_seconds = 20.0\nstall_seconds = 99.0\n')
    environ = {
        "RAY_SENTINEL_CONFIG": str(file),
        "RAY_SENTINEL_JOB": "not a setting",
        "RAY_SENTINEL_HANG__SILENCE_SECONDS": "30",
        "RAY_SENTINEL_AGENT__PUBLIC": "true",
    }
    config = load(environ=environ, overrides={"hang": {"silence_factor": 5.0}})
    assert config.job == "file"
    assert config.hang.silence_seconds == 30
    assert config.hang.silence_factor == 5
    assert config.hang.stall_seconds == 99
    assert config.agent.public is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[hang]\nsilence_second = 3\n",
            r"unknown key hang.silence_second; did you mean silence_s",
        ),
        ("jbo = 'x'\n", r"unknown key jbo; did you mean job"),
        ("[hang]\nsilence_seconds = 'long'\n", r"hang.silence_seconds"),
        ("[hang\n", r"not valid TOML"),
        ("\x00\xff", r"not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_names_the_file_and_what_was_meant(
    text: str, said: str, tmp_path: Path
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        load(file, environ={})
    assert str(file) in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load(tmp_path / "none.toml", environ={})


def test_a_mistake_in_the_environment_says_so() -> None:
    with pytest.raises(ConfigError, match="environment"):
        load(environ={"RAY_SENTINEL_HANG__SILENCE_SECONDS": "soon"})


def test_a_mistake_in_the_arguments_says_so() -> None:
    with pytest.raises(ConfigError, match="arguments"):
        load(environ={}, overrides={"hang": {"silence": 1.0}})


def test_the_folder_is_the_named_one_or_the_job_s_own() -> None:
    assert load(environ={"RAY_SENTINEL_LOG_DIR": "/data/x"}).directory() == Path("/data/x")
    home = Path("~/ray_sentinel").expanduser()
    assert load(environ={}, overrides={"job": "a/b"}).directory() == home / "a_b"


@pytest.mark.parametrize("text", ["../../etc", "..", "a\nb", "x" * 500, "/"])
def test_a_safe_name_is_one_file_name(text: str) -> None:
    name = safe_name(text)
    assert "/" not in name
    assert "\n" not in name
    assert name not in (".", "..")
    assert len(name) <= 100


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("agent", "port", "99999"),
        ("coordinator", "port", "-1"),
        ("agent", "snapshot_interval", "0"),
        ("coordinator", "tick_interval", "-2.5"),
        ("hang", "silence_seconds", "nan"),
        ("hang", "silence_factor", "inf"),
        ("hang", "confirm_seconds", "-1"),
        ("capture", "max_intrusive", "-3"),
        ("storage", "max_bytes", "-1"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused(
    tmp_path: Path, section: str, key: str, value: str
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text(f"[{section}]\n{key} = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert f"{section}.{key}" in str(caught.value)


@pytest.mark.parametrize("order", [1, -1])
def test_a_variable_that_is_a_value_and_a_section(order: int) -> None:
    both = [("RAY_SENTINEL_HANG", "9"), ("RAY_SENTINEL_HANG__SILENCE_SECONDS", "1")]
    with pytest.raises(ConfigError, match="hang"):
        load(environ=dict(both[::order]))


def test_variables_of_our_own_processes_are_no_settings() -> None:
    names = ("ROLE", "FAMILY", "CHECKPOINT", "STEP", "ATTEMPT", "RECORD_DIR", "BAD_NODES")
    assert load(environ={f"RAY_SENTINEL_{name}": "x" for name in names}) == Config()


def test_relative_paths_mean_the_callers_folder() -> None:
    given = Config(log_dir="logs", agent=AgentConfig(plugin_dir="~/p"), capture=CaptureConfig())
    found = absolute(given, Path("/home/me"))
    assert found.log_dir == "/home/me/logs"
    assert found.agent.plugin_dir == "~/p"
    assert found.capture.output_dir == ""
    assert absolute(found, Path("/elsewhere")) == found


def test_a_nul_is_refused_with_its_key(tmp_path: Path) -> None:
    """``pathlib`` raises a ValueError for it, which no command expects of a folder."""
    file = tmp_path / "c.toml"
    file.write_text('[agent]\nplugin_dir = "a\\u0000b"\n')
    with pytest.raises(ConfigError, match=r"c\.toml: agent\.plugin_dir: holds a NUL"):
        load(file, environ={})


def test_what_is_no_text_is_not_sent_to_other_nodes() -> None:
    """A supervised run may write to such a folder; only a deployment cannot."""
    told = load(environ={"RAY_SENTINEL_LOG_DIR": "/logs/\udcff"})
    with pytest.raises(ConfigError, match=r"^log_dir is no UTF-8"):
        to_json(told)
