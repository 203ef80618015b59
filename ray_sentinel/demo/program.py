"""Writes the program of a plan, with names of functions, classes and files that nobody knows.

In ``scripts/`` every name of the program's own begins with ``x_``. Each draw puts other words in
their place, so that no table of known frames can ever match them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.demo.actor_plan import ActorTrialPlan
from ray_sentinel.demo.plan import TrialPlan

OWN = re.compile(r"\bx_\w+")
REPORT, ATTACHED = "x_report", "x_attached"
"""Two scripts of which a plan needs one, which is written under the first one's name."""
WAYS = "x_ways"
"""The script of the rank family that the actor family uses too."""
PLAIN = {
    "x_main": "train_rl", "x_learning": "rl", "x_ways": "judge", "x_sleep": "ask_judge",
    "x_Rollout": "Rollout", "x_generate": "generate", "x_judge": "reward", "x_Reward": "Reward",
    "x_score": "score", "x_Trainer": "Trainer", "x_update": "update",
}  # fmt: skip
"""Readable names that the demo uses in its job of actors, in which a rollout sleeps."""
SYLLABLES = ("ba", "cor", "del", "fen", "gru", "hil", "jo", "kes", "lum", "mi", "nor", "pa", "qui",
             "ros", "sta", "tev", "ul", "vor", "wex", "yam", "zin")  # fmt: skip


def write_scripts(folder: Path, plan: TrialPlan) -> None:
    """Put the program and plan.json into ``folder``; ``scripts`` in it finds what to start."""
    _write(folder, _sources("scripts"), plan, MadeUpNames(random.Random(plan.seed)), {})


def write_actor_scripts(
    folder: Path, plan: ActorTrialPlan, plain: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Write the program of a job of actors, some of whose names may be ``plain``. Returns the word
    for each name."""
    sources = {**_sources("scripts/actors"), WAYS: _sources("scripts")[WAYS]}
    words = MadeUpNames(random.Random(plan.seed), plain or {})
    called = {role: words.of(f"x_called_{role}") for role in plan.sizes}
    _write(folder, sources, plan, words, {"called": called})
    return words.given


def _sources(folder: str) -> dict[str, str]:
    return {
        source.name.removesuffix(".py"): source.read_text()
        for source in files("ray_sentinel.demo").joinpath(folder).iterdir()
        if source.name.startswith("x_")
    }


def _write(
    folder: Path,
    sources: dict[str, str],
    plan: TrialPlan | ActorTrialPlan,
    words: MadeUpNames,
    more: Mapping[str, Any],
) -> None:
    """Write the scripts under made-up names, and beside them the plan that they read, with
    ``more``."""
    attached = sources.pop(ATTACHED)
    if plan.attach:
        sources[REPORT] = attached
    names = {name: f"{words.of(name)}.py" for name in sorted(sources)}
    for name, text in sorted(sources.items()):
        (folder / names[name]).write_text(OWN.sub(words.replace, text))
    program = names["x_main"].removesuffix(".py")
    told = {**msgspec.to_builtins(plan), "scripts": names, "program": program, **more}
    (folder / "plan.json").write_bytes(msgspec.json.encode(told))


class MadeUpNames:
    """A made-up word for each name, always the same for the same name, never twice."""

    def __init__(self, dice: random.Random, given: Mapping[str, str] | None = None) -> None:
        self._dice = dice
        self.given: dict[str, str] = dict(given or {})
        """By the name that it stands for."""

    def of(self, name: str) -> str:
        """The word for ``name``; a class's begins with a capital as the name does."""
        while name not in self.given:
            word = "".join(self._dice.choices(SYLLABLES, k=self._dice.randint(2, 3)))
            bare = name.removeprefix("x_")
            word = word.upper() if bare.isupper() else word
            word = word.capitalize() if bare[:1].isupper() and not bare.isupper() else word
            if word not in self.given.values():
                self.given[name] = word
        return self.given[name]

    def replace(self, found: re.Match[str]) -> str:
        """For ``re.sub``."""
        return self.of(found.group())
