"""A tiny real training that saves and resumes; ``FAULTS`` in its environment gets it into trouble.

``python supervised_train.py FOLDER STEPS [CHECKPOINT]``. FAULTS is ``attempt:step:what``, several
with commas: raise, random, sleep, kill, ignore, orphan, cut. Without a FOLDER it saves nothing,
learns nothing, and does without torch, whose import takes longer than all its steps.

Its optimizer is its own: the first one of ``torch.optim`` imports torch's compiler, which takes as
long as the import of torch itself, and attempts are many.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def fault_of(attempt: str, step: int) -> str:
    for fault in filter(None, os.environ.get("FAULTS", "").split(",")):
        at, when, what = fault.split(":")
        if at in (attempt, "*") and int(when) == step:
            return what
    return ""


def suffer(what: str, step: int, newest: Path) -> None:
    if what == "raise":
        raise RuntimeError(f"bad gradient at step {step}")
    if what == "random":
        raise RuntimeError("unlucky " + "abcdefgh"[int(os.environ["RAY_SENTINEL_ATTEMPT"])])
    if what == "cut":
        newest.write_bytes(newest.read_bytes()[:-40])
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "orphan":
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleeper, start_new_session=True)
        Path(os.environ["ORPHAN"]).write_text(str(child.pid))
    if what == "sleep":
        wait_for_a_batch_that_never_comes()


def wait_for_a_batch_that_never_comes() -> None:
    while True:
        time.sleep(1)


class Momentum:
    """Gradient descent with momentum, as ``torch.optim.SGD`` does it."""

    def __init__(self, model: torch.nn.Module, rate: float, momentum: float) -> None:
        import torch

        self.weights, self.rate, self.momentum = list(model.parameters()), rate, momentum
        self.velocities = [torch.zeros_like(weight) for weight in self.weights]

    def step(self) -> None:
        import torch

        with torch.no_grad():
            for weight, velocity in zip(self.weights, self.velocities, strict=True):
                assert weight.grad is not None
                velocity.mul_(self.momentum).add_(weight.grad)
                weight.sub_(self.rate * velocity)
                weight.grad = None


class Learning:
    """What is learned, and saved."""

    def __init__(self, resume: str) -> None:
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = Momentum(self.model, rate=0.05, momentum=0.9)
        self.inputs = torch.randn(64, 4)
        self.targets = self.inputs.sum(1, keepdim=True)
        self.begin = 0
        if resume:
            state = torch.load(Path(resume) / "model.pt")
            self.model.load_state_dict(state["model"])
            self.optimizer.velocities = list(state["optimizer"]["velocities"])
            self.begin = state["step"]

    def step(self) -> float:
        """The loss before it."""
        import torch

        loss = torch.nn.functional.mse_loss(self.model(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def save(self, file: Path, step: int) -> None:
        import torch

        file.parent.mkdir(parents=True, exist_ok=True)
        velocities = {"velocities": self.optimizer.velocities}
        state = {"model": self.model.state_dict(), "optimizer": velocities, "step": step}
        torch.save(state, file)


def main() -> None:
    folder, steps = sys.argv[1], int(sys.argv[2])
    resume = sys.argv[3] if len(sys.argv) > 3 else ""
    attempt = os.environ.get("RAY_SENTINEL_ATTEMPT", "0")
    signal.signal(signal.SIGUSR1, lambda *_: print("USR1 was passed on", flush=True))
    learning = Learning(resume) if folder else None
    newest = Path(resume or folder) / "model.pt"
    for step in range(learning.begin + 1 if learning else 1, steps + 1):
        loss = learning.step() if learning else 1 / step
        print(f"step {step} loss {loss:.6f}", flush=True)
        time.sleep(float(os.environ.get("PACE", "0.02")))
        if learning and step % 5 == 0:
            newest = Path(folder) / f"step_{step}" / "model.pt"
            learning.save(newest, step)
        if what := fault_of(attempt, step):
            suffer(what, step, newest)


if __name__ == "__main__":
    main()
