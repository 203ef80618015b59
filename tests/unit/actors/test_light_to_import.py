"""A process imports only what it works with: more would cost start-up time and memory."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

from ray_sentinel.actors.agent.actor import Agent
from ray_sentinel.actors.coordinator.actor import Coordinator


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has after ``code``."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


def ours(modules: set[str]) -> set[str]:
    return {module for module in modules if module.startswith("ray_sentinel")}


@pytest.mark.parametrize("name", ["agent", "coordinator"])
def test_who_looks_an_actor_up_does_not_import_what_it_works_with(name: str) -> None:
    # Whoever does has the messages, which it sends and gets.
    had = loaded_by("import ray_sentinel.actors.messages, ray_sentinel.engine.events")
    loaded = loaded_by(f"import ray_sentinel.actors.{name}.actor")
    assert "ray" not in loaded
    own = {f"ray_sentinel.actors.{name}", f"ray_sentinel.actors.{name}.actor"}
    assert own <= ours(loaded) <= ours(had) | own


def test_attach_waits_for_neither_ray_nor_the_engine() -> None:
    # The thread that deploys imports more, after attach() has returned.
    loaded = loaded_by(
        "import ray_sentinel.actors.deployment.deployer as deployer\n"
        "deployer.Deployer.start = lambda self: None\n"
        "import ray_sentinel\n"
        "ray_sentinel.attach(job='light', rank=0, world_size=1).detach()"
    )
    assert "ray_sentinel.progress.rank.writer" in loaded, "it did attach"
    costly = {"ray", "torch", "numpy", "ctypes", "subprocess", "tempfile", "ray_sentinel.engine"}
    assert not loaded & (costly - _for_ptrace())


def test_a_command_that_asks_the_coordinator_does_not_import_the_engine() -> None:
    loaded = loaded_by(
        "import ray_sentinel.cli.commands.status, ray_sentinel.cli.commands.down\n"
        "import ray_sentinel.actors.deployment.cluster, ray_sentinel.actors.deployment.deploy"
    )
    assert "ray_sentinel.actors.deployment.deploy" in loaded
    assert "ray_sentinel.engine" not in loaded


def _for_ptrace() -> set[str]:
    """What is needed where Yama restricts ptrace."""
    from ray_sentinel.kernel_files import yama_scope

    return {"ctypes"} if yama_scope() == 1 else set()


@pytest.mark.parametrize("actor", [Agent, Coordinator])
def test_the_coordinator_s_calls_share_a_loop_and_an_agent_s_have_threads(actor: Any) -> None:
    asked = [method for name, method in vars(actor).items() if not name.startswith("_")]
    assert len(asked) > 5
    # An agent's constructor must run on the main thread, which it does not in an async actor.
    assert {inspect.iscoroutinefunction(method) for method in asked} == {actor is Coordinator}
