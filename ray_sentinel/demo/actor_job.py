"""A job of Ray actors: its driver as a program of its own, and what the plan needs beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ray_sentinel import process, signals
from ray_sentinel.demo.actor_plan import ActorTrialPlan
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.program import write_actor_scripts
from ray_sentinel.errors import SentinelError

GUEST_RESOURCE = "guest"
GUEST_STORE = 80_000_000
"""Bytes of the guest node's object store; Ray accepts no less than 75 MB."""
CGROUP = Path("/sys/fs/cgroup")
GUESTS = frozenset({"gone", "rebuild", "store"})
"""Faults, and healthy courses, that need a node that may leave."""
COMMAND_SECONDS = 90.0
"""Seconds that ``ray job submit`` and ``ray job stop`` may take."""


class ActorJob:
    """One driver. ``members`` are known by the processes that they have noted."""

    def __init__(
        self,
        plan: ActorTrialPlan,
        machines: Machines,
        folder: Path,
        plain: Mapping[str, str] | None = None,
    ) -> None:
        self._plan, self._machines, self._folder = plan, machines, folder
        self.words = write_actor_scripts(folder, plan, plain)
        self._scripts: dict[str, str] = msgspec.json.decode((folder / "plan.json").read_bytes())[
            "scripts"
        ]
        self._driver: subprocess.Popen[bytes] | None = None
        self._holder: subprocess.Popen[bytes] | None = None
        self._submitted = ""
        self._undo = contextlib.ExitStack()
        self._guest: contextlib.ExitStack | None = None

    @property
    def script(self) -> str:
        """The name of the driver's program, without its suffix."""
        return self._scripts["x_main"].removesuffix(".py")

    def start(self) -> None:
        """Start the driver, behind what it needs. Raises SentinelError if that does not come."""
        if self._plan.how == "oom" and not any(
            os.access(group, os.W_OK) for group in (CGROUP / "memory", CGROUP / "cgroup.procs")
        ):
            raise SentinelError("no cgroup of memory can be made here")
        if self._plan.how in GUESTS:
            self._guest = self._undo.enter_context(contextlib.ExitStack())
            self._guest.enter_context(
                self._machines.guest(resources={GUEST_RESOURCE: 1}, store=GUEST_STORE)
            )
        if self._plan.how == "held":
            self._holder = self._spawn("x_holder", "holder")
            self._await_file("held", self._holder)
        if self._plan.fault == "job-stop":
            self._submitted = f"demo-{self._plan.seed}"
            self._jobs("submit", "--no-wait", f"--submission-id={self._submitted}", "--",
                       sys.executable, str(self._folder / self._scripts["x_main"]))  # fmt: skip
        else:
            self._driver = self._spawn("x_main", "driver")

    def _spawn(self, script: str, name: str) -> subprocess.Popen[bytes]:
        """Start one of the scripts as a driver; its output goes to ``NAME.log``."""
        by_client = self._plan.fault == "client"
        address = self._machines.client_address if by_client else self._machines.gcs_address
        with (self._folder / f"{name}.log").open("ab") as log:
            child = process.spawn(
                [sys.executable, str(self._folder / self._scripts[script])],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "RAY_ADDRESS": address, "PYTHONUNBUFFERED": "1"},
                cwd=self._folder,
            )
        self._undo.callback(process.end, child)
        return child

    def _await_file(self, name: str, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + COMMAND_SECONDS
        while self.noted(name) is None:
            if time.monotonic() > deadline or child.poll() not in (None, 0):
                raise SentinelError(f"the holder does not come: {self.last_lines('holder')}")
            time.sleep(0.1)

    def _jobs(self, *arguments: str) -> None:
        """``ray job``, at the dashboard."""
        command = process.python_module("ray.scripts.scripts", "job", arguments[0])
        command += [f"--address={self._machines.dashboard_url}", *arguments[1:]]
        done = process.run(command, deadline=COMMAND_SECONDS)
        if not done.ok:
            raise SentinelError(f"ray job {arguments[0]}: {done.explain()}")

    def tend(self) -> None:
        """Do what the driver has asked for: let the guest go."""
        if self._guest is not None and self.noted("guest-may-go") is not None:
            guest, self._guest = self._guest, None
            guest.close()

    def stop(self) -> None:
        """End it as people do: by Ctrl-C, or by ``ray job stop`` where it was submitted."""
        if self._submitted:
            self._jobs("stop", self._submitted)
        elif self._driver is not None and self._driver.poll() is None:
            signals.send_child(self._driver, signal.SIGINT)

    def ended(self) -> int | None:
        """The driver's exit status; None while it runs, and of one that was submitted."""
        return None if self._driver is None else self._driver.poll()

    def began(self) -> float | None:
        """When the trouble began, or what takes long in a healthy job (Unix seconds); None before.

        Where a job first uses up what it has, its trouble begins when that is gone.
        """
        found = [self.noted(path.name) for path in self._folder.glob("began-*")]
        if not found or None in found:
            return None
        moved = self.noted("moved") if self._plan.fault == "input" else None
        return max(*(moment for moment in found if moment), moved or 0.0)

    def noted(self, name: str) -> float | None:
        """A number that the program has written down; None if it has not."""
        try:
            return float((self._folder / name).read_text())
        except (OSError, ValueError):
            return None

    def members(self) -> dict[int, str]:
        """The members by their processes' pids."""
        found = {path: self.noted(path.name) for path in self._folder.glob("process-*")}
        return {int(pid): path.name.removeprefix("process-") for path, pid in found.items() if pid}

    def last_lines(self, name: str = "driver", count: int = 3) -> str:
        """The end of the driver's output."""
        try:
            text = (self._folder / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""
        return " / ".join(text.splitlines()[-count:])

    def close(self) -> None:
        """End all that is left, and the detached actors."""
        (self._folder / "plan.json").unlink(missing_ok=True)
        packages = self._folder / "packages.zip"
        with contextlib.suppress(OSError):  # nobody reads it
            os.close(os.open(packages, os.O_WRONLY | os.O_NONBLOCK))
        self._undo.close()
        for group in (*CGROUP.glob("memory/demo-*"), *CGROUP.glob("demo-*")):
            with contextlib.suppress(OSError):  # another trial's
                group.rmdir()
        self._end_detached(self.words)

    @staticmethod
    def _end_detached(words: Mapping[str, str]) -> None:
        import ray

        known = set(words.values())
        for named in ray.util.list_named_actors(all_namespaces=True):
            if named["name"].rpartition("_")[0] in known or named["name"] in known:
                # It has just ended; or its class is gone already, with its job.
                with contextlib.suppress(ValueError, AssertionError):
                    ray.kill(ray.get_actor(named["name"], namespace=named["namespace"]))
