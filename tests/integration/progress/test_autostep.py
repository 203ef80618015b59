"""Steps are counted from real PyTorch optimizers, until the training counts by itself."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ray_sentinel.progress.rank import who
from ray_sentinel.progress.rank.autostep import SWITCH, AutoStep
from ray_sentinel.progress.rank.writer import ProgressWriter

if TYPE_CHECKING:  # else each stream would import it, a second and more, to collect these tests
    import torch

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """It is there before anything counts."""
    importlib.import_module("torch.optim")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ProgressWriter]:
    opened = ProgressWriter.open(who.resolve("job", 0, 1), [tmp_path])
    yield opened
    opened.close()


def optimizer() -> torch.optim.Optimizer:
    import torch

    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=0.1)


@pytest.fixture
def counter(writer: ProgressWriter) -> Iterator[AutoStep]:
    auto = AutoStep(writer)
    auto.poll()
    yield auto
    auto.stop()


def test_the_first_optimizer_counts_and_a_second_one_does_not(
    writer: ProgressWriter, counter: AutoStep
) -> None:
    first, second = optimizer(), optimizer()
    for _ in range(3):
        first.step()
        second.step()
    assert writer.steps_recorded == 3


def test_an_explicit_step_ends_the_counting(writer: ProgressWriter, counter: AutoStep) -> None:
    one = optimizer()
    one.step()
    writer.step(100)
    one.step()
    counter.poll()
    one.step()
    assert writer.steps_recorded == 2


def test_it_can_be_switched_off(writer: ProgressWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    auto = AutoStep(writer)
    auto.poll()
    optimizer().step()
    assert writer.steps_recorded == 0
