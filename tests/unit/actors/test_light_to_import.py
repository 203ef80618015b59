"""What others wait for, or hold in memory for nothing, is not imported in their processes."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

from ray_sentinel.actors.agent.actor import Agent
from ray_sentinel.actors.agent.node_agent import NodeAgent
from ray_sentinel.actors.coordinator.actor import Coordinator
from ray_sentinel.actors.coordinator.coordination import Coordination


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has after ``code``."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", ["agent", "coordinator"])
def test_who_looks_an_actor_up_does_not_import_what_it_does(name: str) -> None:
    ours = {
        module
        for module in loaded_by(f"import ray_sentinel.actors.{name}.actor")
        if module.startswith("ray_sentinel")
    }
    assert ours == {
        "ray_sentinel",
        "ray_sentinel.actors",
        "ray_sentinel.actors.deployment",
        "ray_sentinel.actors.deployment.vendor",
        f"ray_sentinel.actors.{name}",
        f"ray_sentinel.actors.{name}.actor",
    }


def test_attach_waits_for_neither_ray_nor_the_engine() -> None:
    # The thread that deploys imports more, after attach() has returned.
    loaded = loaded_by(
        "import ray_sentinel.actors.deployment.deployer as deployer\n"
        "deployer.Deployer.start = lambda self: None\n"
        "import ray_sentinel\n"
        "ray_sentinel.attach(job='light', rank=0, world_size=1).detach()"
    )
    assert "ray_sentinel.progress.writer" in loaded, "it did attach"
    dear = {"ray", "torch", "numpy", "ctypes", "subprocess", "tempfile", "ray_sentinel.engine"}
    assert not loaded & (dear - _for_ptrace())


def _for_ptrace() -> set[str]:
    """What is needed where Yama restricts ptrace."""
    from ray_sentinel.kernel_files import yama_scope

    return {"ctypes"} if yama_scope() == 1 else set()


@pytest.mark.parametrize(("door", "behind"), [(Agent, NodeAgent), (Coordinator, Coordination)])
def test_all_that_can_be_asked_is_there_with_the_same_arguments(door: Any, behind: Any) -> None:
    asked = {name: method for name, method in vars(door).items() if not name.startswith("_")}
    assert asked
    for name, method in asked.items():
        given = dict(inspect.signature(method).parameters)
        # Ray adds it to a class that was made an actor in this process.
        given.pop("_ray_trace_ctx", None)
        assert given == inspect.signature(getattr(behind, name)).parameters, name
        # The coordinator's calls share a loop; an agent's have threads.
        assert inspect.iscoroutinefunction(method) == (door is Coordinator), name
