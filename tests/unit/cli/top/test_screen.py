"""The screen of ``top``: what it shows, what its keys do, and that nothing outside rules it."""

from __future__ import annotations

import re

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from ray_sentinel.text import CONTROL
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.top_screen import TopScreen, drawn, served_page

MARKUP = f"[red]{HOSTILE}[/red] [@click=app.quit]x[/] \x9b2J \u202e"


def both(*, hostile: str = "") -> tuple[Incident, ...]:
    return incident(hostile=hostile), incident_of_actors(hostile=hostile)


def test_the_sentence_the_chain_and_the_cells_are_on_the_first_screen() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    with served_page(status, both) as (found, _):
        text = drawn(found, see)
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(" HUNG rank 3 on node-1 is stopped by a signal")
    assert "driver waits 93 s in ray.get" in text
    assert re.search(r"└▶ Rollout 2 \(Rollout.generate\) on node-1: sleeping \(90% sure\)", text)
    assert re.search(r"node-1 +□X□□\?", text)
    assert "seen" in text


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("2", ("! rank 3", "stopped", "1203", "-1", "! Rollout 2", "Rollout.generate")),
        ("3", ("node-9", "no agent yet", "node-0 (head)", "nvml: quarantined")),
        ("5", ("0001", "0002", "rank-stopped", "actor-stuck")),
    ],
)
def test_each_pane_has_its_key(key: str, words: tuple[str, ...]) -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.press(key)

    with served_page(status, both) as (found, _):
        text = drawn(found, see)
    for word in words:
        assert word in text


def test_enter_on_a_node_shows_its_ranks_and_on_a_rank_what_is_known_of_it() -> None:
    async def see(screen: TopScreen) -> tuple[str, str, str]:
        ranks = await screen.press("enter")
        rank = await screen.press("enter")
        return ranks, rank, await screen.press("escape")

    with served_page(status, both) as (found, _):
        ranks, rank, after = drawn(found, see, size=(120, 40))
    assert "[2 ranks]" in ranks
    assert "/node-1" in ranks
    assert "rank 2 " not in ranks, "it is on node-0"
    assert "rank 3 of llama" in rank
    assert "named: stopped by a signal" in rank
    assert "[2 ranks]" in after


def test_a_filter_is_written_kept_and_dropped() -> None:
    async def see(screen: TopScreen) -> tuple[str, str]:
        await screen.press("2", "slash", *"rollout", "enter")
        only = await screen.press("down")
        return only, await screen.press("escape")

    with served_page(status, both) as (found, _):
        only, everything = drawn(found, see)
    assert "Rollout 2" in only
    assert "rank 5" not in only
    assert "rank 5" in everything


def test_question_mark_shows_the_keys_and_q_quits() -> None:
    async def see(screen: TopScreen) -> tuple[str, int | None]:
        keys = await screen.press("question_mark")
        await screen.press("escape")
        await screen.pilot.press("q")
        return keys, screen.app.return_code

    with served_page(status) as (found, _):
        keys, code = drawn(found, see)
    assert "show only what contains a word" in keys
    assert code == 0


def test_hostile_names_are_shown_and_rule_nothing() -> None:
    async def see(screen: TopScreen) -> list[str]:
        shown = [await screen.text()]
        for key in "12345":
            shown.append(await screen.press(key))
            shown.append(await screen.press("enter"))
            shown.append(await screen.press("escape"))
        return shown

    with served_page(lambda: status(hostile=MARKUP), lambda: both(hostile=MARKUP)) as (found, _):
        shown = drawn(found, see, size=(200, 40))
    assert any("[red]<img src=x" in text for text in shown)
    for text in shown:
        assert not CONTROL.search(text)
        assert "map" in text or "esc back" in text, "it still runs"


def test_a_coordinator_that_is_gone_is_said_with_the_age_of_what_is_shown() -> None:
    async def see(screen: TopScreen) -> str:
        page.close()
        return await screen.look()

    with served_page(status) as (found, page):
        text = drawn(found, see)
    first, second, *_ = text.splitlines()
    assert re.match(r" NOT ANSWERING: this is \d+(\.\d)? s old \(", first)
    assert "rank 3 on node-1" in second, "what was seen last stays"


def test_one_that_never_answered_is_asked_on() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    with served_page(status) as (found, page):
        page.close()
        text = drawn(found, see)
    assert "no answer yet: " in text


def test_no_job_and_no_node_is_an_answer() -> None:
    async def see(screen: TopScreen) -> list[str]:
        return [await screen.press(key, "enter", "up", "pagedown") for key in "12345"]

    with served_page(lambda: Status(state="healthy", verdict="no job runs")) as (found, _):
        shown = drawn(found, see)
    assert "no job runs on the watched nodes" in shown[0]
    assert "no incidents" in shown[4]


def test_thousands_of_ranks_are_paged_and_the_cursor_stays_on_its_rank() -> None:
    async def see(screen: TopScreen) -> tuple[str, str]:
        await screen.press("2", "G")
        last = await screen.press("up")
        return last, await screen.look()

    with served_page(lambda: status(ranks=8192), both) as (found, _):
        last, after = drawn(found, see)
    (row,) = [line for line in last.splitlines() if line.startswith("›")]
    assert "rank 8191" in row or "rank 8190" in row
    assert row in after


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 6), (300, 90)])
def test_any_size_is_drawn(size: tuple[int, int]) -> None:
    async def see(screen: TopScreen) -> list[str]:
        return [await screen.press(key) for key in "12345"]

    with served_page(status, both) as (found, _):
        for text in drawn(found, see, size=size):
            assert max(map(len, text.splitlines())) <= size[0]
            assert len(text.splitlines()) <= size[1]


def test_without_colour_the_signs_and_marks_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    async def see(screen: TopScreen) -> tuple[str, str]:
        text = await screen.press("2")
        return text, screen.app.export_screenshot()

    monkeypatch.setenv("NO_COLOR", "1")
    with served_page(status, both) as (found, _):
        text, picture = drawn(found, see)
    assert "! rank 3" in text
    assert re.search("^› ", text, re.MULTILINE)
    colours = set(re.findall(r"-r\d+ \{ fill: #([0-9a-f]{6})", picture))
    colours.discard("c5c8c6")  # of the picture itself, where the screen says nothing
    assert all(colour[:2] == colour[2:4] == colour[4:] for colour in colours), colours
    (urgent,) = re.findall(r'-(r\d+)" [^>]*>HUNG', picture)
    (shade,) = re.findall(rf"-{urgent} \{{ fill: #(..)", picture)
    assert int(shade, 16) > 0xC0, "the most urgent is not the darkest"
