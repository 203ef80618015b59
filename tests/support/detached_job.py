"""A driver that makes two detached actors and ends: a gateway, which goes on calling a scorer.
argv: a folder.

Once there is a file ``block`` in the folder, a call of the scorer never ends; once there is a file
``end``, both end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import ray

FOLDER = Path(sys.argv[1])


class Ends:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        threading.Thread(target=self._ends, daemon=True).start()

    def _ends(self) -> None:
        while not (self.folder / "end").exists():
            time.sleep(0.5)
        os._exit(0)


class Scorer(Ends):
    def score(self) -> float:
        while (self.folder / "block").exists():
            time.sleep(3600)
        time.sleep(0.1)
        return 1.0


class Gateway(Ends):
    def serve(self, scorer: ray.actor.ActorHandle) -> None:
        while True:
            ray.get(scorer.score.remote())


ray.init()
made = [
    ray.remote(one).options(name=f"{FOLDER.name}-{one.__name__}", lifetime="detached", num_cpus=0)
    for one in (Scorer, Gateway)
]
scorer, gateway = (one.remote(FOLDER) for one in made)
gateway.serve.remote(scorer)
ray.get(scorer.score.remote())
