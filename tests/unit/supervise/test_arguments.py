"""Arguments of ``run()`` and the command that cannot be used are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.errors import UsageError
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervised_run import checkpoint_folders, drain


def test_checkpoint_folders() -> None:
    assert checkpoint_folders(()) == ()
    assert checkpoint_folders("/c") == (Path("/c"),)
    assert checkpoint_folders([Path("/c"), "d"]) == (Path("/c"), Path.cwd() / "d")
    for empty in ("", ["/c", ""]):
        with pytest.raises(UsageError, match="is empty"):
            checkpoint_folders(empty)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-output-mib", "0"], "at least 1"),
        (["--checkpoint-dir", ""], "name is empty"),
        (["--retry-delay", "nan"], "retry_delay must be a number"),
        (["--drain-bad-nodes"], "set RAY_ADDRESS"),
        (["--page", "foo"], "no address of a page"),
        (["--page", "http://h:99999"], "no address of a page"),
        (["--page", "http://[::1"], "no address of a page"),
        (["--drain-bad-nodes", "--ray-job", "x"], "is for a command"),
    ],
)
def test_options_that_cannot_be_used(
    options: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    command = [] if "--ray-job" in options else ["--", "true"]
    assert main(["run", "--page=", *options, *command]) == 2
    assert says in capsys.readouterr().err


def test_a_node_that_cannot_be_drained_is_said_and_stops_nothing() -> None:
    node = BadNode(host="n7", why="Xid 79")
    said = drain(node, {"RAY_ADDRESS": "127.0.0.1:1"})
    assert said.startswith("n7 is not drained: no Ray cluster answers")
    # One that happens to run here is not looked for.
    assert drain(node, {}) == "n7 is not drained: RAY_ADDRESS does not name the cluster"
