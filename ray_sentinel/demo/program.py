"""Writes the training program of a plan, with names of functions and files that nobody knows.

In ``scripts/`` every name of the program's own begins with ``x_``. Each draw puts other words in
their place, so that no table of known frames can ever match them.
"""

from __future__ import annotations

import random
from importlib.resources import files
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.demo.plan import TrialPlan

OWN = re.compile(r"\bx_\w+")
REPORT, ATTACHED = "x_report", "x_attached"
"""Of these two, a plan needs one: it is written under the first one's name."""
SYLLABLES = ("ba", "cor", "del", "fen", "gru", "hil", "jo", "kes", "lum", "mi", "nor", "pa", "qui",
             "ros", "sta", "tev", "ul", "vor", "wex", "yam", "zin")  # fmt: skip


def write_scripts(folder: Path, plan: TrialPlan) -> None:
    """Put the program and plan.json into ``folder``; ``main_script`` finds what to start."""
    words = MadeUpNames(random.Random(plan.seed))
    sources = {
        source.name.removesuffix(".py"): source.read_text()
        for source in (files("ray_sentinel.demo") / "scripts").iterdir()
        if source.name.startswith("x_")
    }
    attached = sources.pop(ATTACHED)
    if plan.attach:
        sources[REPORT] = attached
    names = {name: f"{words.of(name)}.py" for name in sorted(sources)}
    for name, text in sorted(sources.items()):
        (folder / names[name]).write_text(OWN.sub(words.replace, text))
    told = {**msgspec.to_builtins(plan), "scripts": names}
    (folder / "plan.json").write_bytes(msgspec.json.encode(told))


class MadeUpNames:
    """A made-up word for each name, always the same for the same name, never twice."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._given: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The word for ``name``; a class's begins with a capital as the name does."""
        while name not in self._given:
            word = "".join(self._dice.choices(SYLLABLES, k=self._dice.randint(2, 3)))
            bare = name.removeprefix("x_")
            word = word.upper() if bare.isupper() else word
            word = word.capitalize() if bare[:1].isupper() and not bare.isupper() else word
            if word not in self._given.values():
                self._given[name] = word
        return self._given[name]

    def replace(self, found: re.Match[str]) -> str:
        """For ``re.sub``."""
        return self.of(found.group())
