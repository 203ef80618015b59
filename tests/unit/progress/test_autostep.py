"""The hook in torch's optimizers is put there once, and never taken away while they step."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.autostep import AutoStep
from ray_sentinel.progress.rank.writer import ProgressWriter

Hook = Callable[[Any, Any, Any], None]


class Optimizers(ModuleType):
    """Stands in for torch.optim.optimizer: one table of hooks for all optimizers."""

    def __init__(self) -> None:
        super().__init__("torch.optim.optimizer")
        self.hooks: OrderedDict[int, Hook] = OrderedDict()

    def register_optimizer_step_post_hook(self, hook: Hook) -> None:
        self.hooks[len(self.hooks)] = hook

    def step(self) -> None:
        """As an optimizer's: the hooks are run through where they lie."""
        for hook in self.hooks.values():
            hook(self, (), {})


@pytest.fixture
def optimizers(monkeypatch: pytest.MonkeyPatch) -> Optimizers:
    module = Optimizers()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def attached(folder: Path, job: str = "job") -> ProgressWriter:
    identity = RankIdentity(job=job, rank=0, world_size=1, local_rank=0, source="torchrun")
    return ProgressWriter.open(identity, [folder])


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ProgressWriter]:
    opened = attached(tmp_path)
    yield opened
    opened.close()


def test_whoever_comes_and_goes_there_is_one_hook(optimizers: Optimizers, tmp_path: Path) -> None:
    for trial in range(3):
        writer = attached(tmp_path, f"trial-{trial}")
        counter = AutoStep(writer)
        counter.poll()
        counter.poll()
        for steps in (1, 2):
            optimizers.step()
            assert writer.steps_recorded == steps
        counter.stop()
        counter.poll()
        optimizers.step()
        assert writer.steps_recorded == 2, "who has stopped counts no more"
        writer.close()
        assert len(optimizers.hooks) == 1


def test_stopped_during_a_step_it_leaves_the_hooks_as_they_are(
    optimizers: Optimizers, writer: ProgressWriter
) -> None:
    """The companion thread stops it while the training thread is among the hooks."""
    counter = AutoStep(writer)
    optimizers.register_optimizer_step_post_hook(lambda *_: counter.stop())
    counter.poll()
    optimizers.register_optimizer_step_post_hook(lambda *_: None)
    optimizers.step()
    assert writer.steps_recorded == 0
    assert len(optimizers.hooks) == 3
