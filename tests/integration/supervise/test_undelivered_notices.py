"""A coordinator that is killed between an incident and its notice: the next one sends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from ray_sentinel.actors.coordinator.event_log.recovery import Restored
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config, NotifyConfig
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.supervise.notify.notifier import PATIENCE_SECONDS
from tests.support.waiting import eventually
from tests.unit.actors.test_repeated_recovery import Killed, SimClock, the_incident

pytestmark = pytest.mark.integration

RECEIVER = """#!/bin/sh
notice=$(cat)
[ -e "$0.refuses-$1" ] && exit 1
printf '%s\\n' "$notice" >> "$0.told"
"""


class Telling(Killed):
    """Its incidents are told to a program, which knows by which life of the coordinator."""

    def __init__(self, folder: Path) -> None:
        self.folder_of_all, self.life = folder, 0
        self.receiver = folder / "receiver"
        self.receiver.write_text(RECEIVER)
        self.receiver.chmod(0o755)
        self.executor: Executor | None = None
        super().__init__(folder / "events")
        self.take_over(ended=None)

    def take_over(self, ended: float | None, *, notify: bool = True) -> None:
        """Make the executor of a new life, as the coordinator's parts do."""
        self.life += 1
        command = f"{self.receiver} {self.life}" if notify else ""
        config = Config(
            log_dir=str(self.folder_of_all / "log"), notify=NotifyConfig(command=command)
        )
        known = self.engine.incidents()
        storage = DeploymentStorage(config)
        self.executor = Executor(
            config, cast(Any, None), storage, known, clock=SimClock(self), ended=ended
        )
        self.executor.feed = self.loop.feed
        self.executor.send_undelivered(self.loop.incidents())

    def _act(self, action: AnyAction) -> None:
        if isinstance(action, Publish) and self.executor is not None:
            self.executor(action)
        super()._act(action)

    def kill(self, taken: int = 0, *, notify: bool = True) -> Restored:
        assert self.executor is not None
        self.executor.close()
        restored = super().kill(taken)
        self.take_over(restored.engine.now, notify=notify)
        return restored

    def refuse(self) -> None:
        """Nothing that this life of the coordinator tells arrives."""
        self.receiver.with_name(f"receiver.refuses-{self.life}").touch()

    def told(self) -> list[dict[str, Any]]:
        path = self.receiver.with_name("receiver.told")
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def events(self) -> list[str]:
        return [notice["event"] for notice in self.told()]

    def noted(self) -> set[str]:
        """The states that the log says were told."""
        steps = the_incident(self).milestones
        return {step.text for step in steps if step.what == "notified"}


@pytest.fixture
def sim(tmp_path: Path) -> Telling:
    made = Telling(tmp_path)
    made.run(60)
    return made


def resolve(sim: Telling) -> None:
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(15)
    assert the_incident(sim).state == "resolved"


def test_what_was_not_delivered_is_sent_by_the_next_coordinator_once(sim: Telling) -> None:
    sim.refuse()
    sim.stick(2)
    sim.run(30)
    assert the_incident(sim).state == "explained"
    sim.kill()
    eventually(lambda: sim.events() == ["confirmed", "explained"], "both are told")
    confirmed, explained = sim.told()
    assert confirmed["details"]["state"] == "confirmed"
    assert confirmed["time"] < explained["time"]
    assert (confirmed["job"], confirmed["text"]) == ("job", explained["text"])
    eventually(lambda: sim.noted() == {"as confirmed", "as explained"}, "the log says so")
    sim.kill()
    resolve(sim)
    eventually(lambda: "resolved" in sim.events(), "the end is told")
    assert sim.events() == ["confirmed", "explained", "resolved"]


def test_a_coordinator_that_told_all_leaves_nothing_to_the_next(sim: Telling) -> None:
    sim.stick(2)
    sim.run(30)
    eventually(lambda: sim.noted() == {"as confirmed", "as explained"}, "both are told")
    sim.kill()
    resolve(sim)
    eventually(lambda: "resolved" in sim.events(), "the end is told")
    assert sim.events() == ["confirmed", "explained", "resolved"]


def test_what_was_given_up_long_ago_is_not_told_because_somebody_listens_now(
    sim: Telling,
) -> None:
    sim.kill(notify=False)
    sim.stick(2)
    sim.run(30)
    assert the_incident(sim).state == "explained"
    sim.run(PATIENCE_SECONDS)
    sim.kill()
    resolve(sim)
    eventually(lambda: bool(sim.events()), "the end is told")
    assert sim.events() == ["resolved"]
