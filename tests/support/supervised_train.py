"""A tiny real training that saves and resumes; ``FAULTS`` in its environment gets it into trouble.

``python supervised_train.py FOLDER STEPS [CHECKPOINT]``. FAULTS is ``attempt:step:what``, several
with commas: raise, random, sleep, kill, ignore, orphan, cut.

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
        self.weights, self.rate, self.momentum = list(model.parameters()), rate, momentum
        self.velocities = [torch.zeros_like(weight) for weight in self.weights]

    @torch.no_grad()
    def step(self) -> None:
        for weight, velocity in zip(self.weights, self.velocities, strict=True):
            assert weight.grad is not None
            velocity.mul_(self.momentum).add_(weight.grad)
            weight.sub_(self.rate * velocity)
            weight.grad = None


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    resume = sys.argv[3] if len(sys.argv) > 3 else ""
    attempt = os.environ.get("RAY_SENTINEL_ATTEMPT", "0")
    signal.signal(signal.SIGUSR1, lambda *_: print("USR1 was passed on", flush=True))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = Momentum(model, rate=0.05, momentum=0.9)
    inputs = torch.randn(64, 4)
    targets = inputs.sum(1, keepdim=True)
    begin = 0
    if resume:
        state = torch.load(Path(resume) / "model.pt")
        model.load_state_dict(state["model"])
        optimizer.velocities = list(state["optimizer"]["velocities"])
        begin = state["step"]
    newest = Path(resume or folder) / "model.pt"
    for step in range(begin + 1, steps + 1):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
        time.sleep(float(os.environ.get("PACE", "0.02")))
        if step % 5 == 0:
            target = folder / f"step_{step}"
            target.mkdir(parents=True, exist_ok=True)
            newest = target / "model.pt"
            velocities = {"velocities": optimizer.velocities}
            state = {"model": model.state_dict(), "optimizer": velocities, "step": step}
            torch.save(state, newest)
        if what := fault_of(attempt, step):
            suffer(what, step, newest)


if __name__ == "__main__":
    main()
