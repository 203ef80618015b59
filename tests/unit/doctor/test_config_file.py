"""Each mistake that people make in a YAML file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.doctor import yaml_text
from ray_sentinel.doctor.check import Here
from ray_sentinel.doctor.checks.config_file import ConfigFileCheck
from ray_sentinel.doctor.plan import RunPlan

GOOD = """\
elastic:
  min_nodes: 2
  max_nodes: 8
scaling:
  strategy: constant_batch
  target_global_batch_size: 64
checkpoint:
  checkpoint_interval: 500
  memory_snapshot_interval: 0
  path: s3://bucket/a:b
training: {lr: 1e-4, batch_size: 8}
rdzv_id: "my-job: 123"
note: |
  lr:1e-4 is how not to write it
"""


@pytest.mark.parametrize(
    ("text", "line", "says", "remedy"),
    [
        ("training:\n  lr:1e-4\n  seed: 1\n", 2, "space after the colon of lr", "lr: 1e-4"),
        ("training:\n\tlr: 1e-4\n", 2, "tab", "spaces"),
        ("rdzv_id: my-job: 123\n", 1, "colon and a space", '"my-job: 123"'),
        ("a: @x\n", 1, "at sign", '"@x"'),
        ("a: `x`\n", 1, "backtick", "quotes"),
        ('a: "x\nb: 1\n', None, "quoted", "quotes"),
        ("a: [1, 2\nb: 1\n", None, "", "bracket"),
        ("a:\n  b: 1\n c: 2\n", 3, "", "same number of spaces"),
        ("a: *missing\n", 1, "asterisk", "quotes"),
        ("a: !!python/object:os.system x\n", 1, "tag", "tag"),
        ("a: 1\nb\nc: 2\n", None, "", "colon"),
    ],
)
def test_what_the_parser_stumbles_over(text: str, line: int | None, says: str, remedy: str) -> None:
    [mistake] = yaml_text.read(text).mistakes
    assert mistake.fatal
    assert says in mistake.text
    assert remedy in mistake.remedy
    if line is not None:
        assert mistake.line == line


def test_what_loads_and_means_something_else() -> None:
    [double] = yaml_text.read("a: 1\nb: 2\na: 3\n").mistakes
    assert (double.line, double.fatal) == (3, False)
    [space] = yaml_text.read("lr:1e-4\n").mistakes
    assert space.remedy == "write lr: 1e-4"
    text = 'rdzv_id: 20:30\nquoted: "20:30"\nendpoint: host:29500\nother: my-job:123\n'
    [base60] = yaml_text.read(text).mistakes
    assert (base60.line, base60.fatal) == (1, False)
    assert "the number 1230" in base60.text
    assert base60.remedy == 'put it in quotes: rdzv_id: "20:30"'


@pytest.mark.parametrize("text", ["a: 2024-13-45\n", "a: \x00\n", "[" * 5000, "&a [*a]", "? ? ?\n"])
def test_nothing_in_a_file_makes_the_reader_fail(text: str) -> None:
    yaml_text.read(text)


def results(tmp_path: Path, judged, text: str, like: str = "", cluster=None) -> list:
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "like.yaml").write_text(like)
    plan = RunPlan(
        config_file=str(tmp_path / "config.yaml"),
        config_like=str(tmp_path / "like.yaml") if like else "",
    )
    facts = ConfigFileCheck().look(plan, Here(host="a"))
    return judged(ConfigFileCheck(), {"a": facts}, plan, cluster)


def test_a_good_file(tmp_path: Path, judged) -> None:
    assert [r.outcome for r in results(tmp_path, judged, GOOD)] == ["ok"]


@pytest.mark.parametrize(
    ("good", "bad", "says", "remedy"),
    [
        ("min_nodes: 2", "min_nodes: 0", "elastic.min_nodes must be", "min_nodes: 1"),
        ("min_nodes: 2", "min_nodes: two", "elastic.min_nodes must be", "min_nodes: 1"),
        ("max_nodes: 8", "max_nodes: 1", "less than min_nodes", "max_nodes: 2"),
        ("interval: 500", "interval: 0", "checkpoint_interval must be positive", "500"),
        ("  target_global_batch_size: 64\n", "", "constant_batch needs it", "variable_batch"),
        ("constant_batch", "constant-batch", "is no strategy", "constant_batch"),
        ("min_nodes: 2", "min_node: 2", "elastic.min_node is no known key", "min_nodes?"),
        ("batch_size: 8", "batch_size: -8", "training.batch_size must be positive", "batch_size"),
    ],
)
def test_values_and_keys(
    tmp_path: Path, judged, good: str, bad: str, says: str, remedy: str
) -> None:
    assert good in GOOD
    [found] = results(tmp_path, judged, GOOD.replace(good, bad))
    assert says in found.seen
    assert remedy in found.remedy


def test_keys_that_a_good_file_does_not_have(tmp_path: Path, judged) -> None:
    [found] = results(tmp_path, judged, "model:\n  hidden_sise: 1\n", "model:\n  hidden_size: 1\n")
    assert (found.outcome, found.remedy) == ("failure", "did you mean hidden_size?")


def test_fewer_nodes_than_the_run_accepts(tmp_path: Path, judged, cluster_of) -> None:
    [found] = results(tmp_path, judged, GOOD, cluster=cluster_of("a"))
    assert "min_nodes is 2, and 1 nodes are there" in found.seen


def test_an_empty_file(tmp_path: Path, judged) -> None:
    [found] = results(tmp_path, judged, "# nothing\n")
    assert "is empty" in found.seen
