"""What ARCHITECTURE.md names is there, and it names every room and every module at the top."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ray_sentinel"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = set(re.findall(r"`([^`\n]+)`", TEXT))


def test_every_path_in_it_is_there() -> None:
    paths = {name.rstrip("/") for name in NAMED if re.fullmatch(r"[\w/.]+(/|\.py)", name)}
    assert len(paths) > 80
    places = [place.relative_to(ROOT) for top in ROOT.iterdir() for place in _inside(top)]
    known = {part for place in places for part in _ends(place)}
    assert paths - known == set()


def test_every_name_in_its_walks_is_there() -> None:
    walks = TEXT[TEXT.index("## Walks") : TEXT.index("## The rooms")]
    names = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\(\))?`", walks))
    assert len(names) > 40
    sources = "\n".join(
        path.read_text()
        for top in ("ray_sentinel", "exporters", "plugins")
        for path in (ROOT / top).rglob("*.py")
    )
    defined = set(re.findall(r"(?:def|class) (\w+)", sources))
    assert names - defined <= {"status", "top"}, "commands"


def test_all_that_lies_at_the_top_of_the_package_is_named() -> None:
    places = [place for place in PACKAGE.iterdir() if not place.name.startswith(("_", "py."))]
    tops = {place.name + "/" * place.is_dir() for place in places}
    assert {top for top in tops if not any(name.startswith(top) for name in NAMED)} == set()


def _inside(top: Path) -> list[Path]:
    hidden = top.name.startswith(".")
    return [] if hidden else [top, *(top.rglob("*") if top.is_dir() else ())]


def _ends(place: Path) -> set[str]:
    """The path, and each end of it: people leave out where the rooms lie."""
    return {"/".join(place.parts[at:]) for at in range(len(place.parts))}
