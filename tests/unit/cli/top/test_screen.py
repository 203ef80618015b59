"""The screen of ``top``: what it shows, what its keys do, and that nothing outside rules it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence

import msgspec
import pytest
from textual import events

from ray_sentinel.cli.top.app import TopApp
from ray_sentinel.cli.top.panes import PANES
from ray_sentinel.cli.top.rows import RowsPane
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import Status
from ray_sentinel.text import CONTROL
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_nodes import cluster
from tests.support.page_pulse import report
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
    assert re.search(r"└▶ Rollout 2 \(Rollout.generate\) on node-1: sleeping \(90 % sure\)", text)
    assert re.search(r"node-1 +□X□□\?", text)
    assert "seen" in text


def hung() -> Incident:
    """Two classes of ranks wait for one that is stopped, one of them for the other class."""
    found = incident()
    assert found.verdict is not None
    waiting = ("ranks 0-2, 4-6: for 3 in all_reduce, number 7", "rank 7: for 6 in recv of pipeline")
    verdict = msgspec.structs.replace(found.verdict, waiting=waiting)
    return msgspec.structs.replace(found, verdict=verdict)


def test_classes_of_waiting_ranks_lead_to_the_one_that_holds_them_up() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    with served_page(status, lambda: (hung(),)) as (found, _):
        lines = drawn(found, see).splitlines()
    first = next(n for n, line in enumerate(lines) if "ranks 0-2, 4-6" in line)
    assert lines[first] == " ┌ ranks 0-2, 4-6 waits for rank 3 in all_reduce, number 7"
    assert lines[first + 1] == " ┊ rank 7 waits for rank 6 in recv of pipeline", "indirectly"
    root = " └▶ rank 3 · node-1 · pid 4003 · stopped by a signal (99 % sure) · llama"
    assert lines[first + 2] == root


def test_what_to_do_first_stands_below_the_root() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    told = hung()
    assert told.verdict is not None
    verdict = msgspec.structs.replace(told.verdict, next_steps=("kill -CONT 4003", "find out who"))
    told = msgspec.structs.replace(told, verdict=verdict)
    with served_page(status, lambda: (told,), report) as (found, _):
        lines = drawn(found, see).splitlines()
    root = next(n for n, line in enumerate(lines) if line.startswith(" └▶ rank 3"))
    assert lines[root + 1] == " → kill -CONT 4003"
    assert "find out who" not in "\n".join(lines)


def test_nodes_in_trouble_come_first() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.press("3")

    many = cluster(400, 1)
    nodes = list(many.nodes)
    nodes[7] = msgspec.structs.replace(nodes[7], snapshot_age_seconds=25.0)
    many = msgspec.structs.replace(many, nodes=tuple(nodes))
    with served_page(lambda: many) as (found, _):
        lines = drawn(found, see).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("›"))
    shown = [line.strip("› ").split()[0] for line in lines[first : first + 3]]
    assert shown == ["node-0007", "node-0299", "node-0000"]
    assert "nvml: quarantined (no answer in 5 s)" in lines[first + 1]


@pytest.mark.parametrize("size", [(80, 16), (40, 12)])
def test_the_root_stands_there_where_little_else_has_room(size: tuple[int, int]) -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    with served_page(status, lambda: (hung(),), report) as (found, _):
        text = drawn(found, see, size=size)
    assert "└▶ rank 3 · node-1" in text
    assert "HUNG rank 3 on node-1" in text


def test_the_pulse_stands_below_its_job_with_what_happened() -> None:
    async def see(screen: TopScreen) -> tuple[str, str, str]:
        first = await screen.text()
        return first, await screen.press("6"), await screen.press("enter")

    with served_page(status, both, report) as (found, _):
        first, pane, details = drawn(found, see)
    lines = first.splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith(" llama ·")]
    assert re.search(r"^ +▂+▲▂+█▂+■▂+◆▂+! steps 0\.9 s, last 60 min$", lines[at + 1])
    assert re.search(r"llama +0\.9 s +9\.9 s +.*█", pane)
    assert re.search(r"train_rl-1 Trainer\.update +4\.1 s", pane)
    assert "× nothing ends" in pane
    assert "◆ node-1: GPU 3 Xid 94: ECC error" in details
    assert "! incident 0001: rank 3 on node-1 is stopped" in details
    assert details.count("░ checkpoint for 41 s") == 2


def test_a_coordinator_that_tells_no_pulse_is_shown_without() -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.press("6")

    with served_page(status) as (found, _):
        text = drawn(found, see)
    assert "no step or call has ended yet" in text
    assert "HUNG" in text


@pytest.mark.parametrize("ranks", [64, 66, 73, 80, 82, 90, 200])
def test_no_few_cells_stand_alone_and_no_word_is_cut(ranks: int) -> None:
    async def see(screen: TopScreen) -> str:
        return await screen.text()

    with served_page(lambda: status(ranks=ranks), both, report) as (found, _):
        lines = drawn(found, see, size=(80, 40)).splitlines()
        whole = set(re.findall(r"\w+", drawn(found, see, size=(200, 40))))
    counts = [sum(line.count(sign) for sign in "□X?") for line in lines if "□" in line]
    cells = counts[:-1]  # the last one is the legend
    assert sum(cells) == ranks + 2
    assert min(cells) >= 8
    cut = re.findall(r"(\w+)…", "\n".join(lines))
    assert "s" in cut, "the job's line: train for 14 s"
    assert whole.issuperset(cut)


def test_the_stack_of_a_healthy_rank_is_taken_when_it_is_asked_for() -> None:
    asked: list[tuple[tuple[str, ...], int]] = []

    def take(nodes: Sequence[str], pid: int) -> tuple[tuple[StackFact, ...], tuple[str, ...]]:
        asked.append((tuple(nodes), pid))
        if len(asked) > 1:
            raise UnreachableError("node-1 is gone")
        places = ("main (train.py:10)", f"step{MARKUP} (model.py:88)")
        fact = StackFact(process=ProcessId("node-1", pid), signature=places, label="in backward")
        return (fact,), ()

    async def see(screen: TopScreen) -> tuple[str, str, str]:
        await screen.press("2", "slash", *"rank 5", "enter")
        await screen.press("s")
        await screen.app.workers.wait_for_complete()
        first = await screen.text()
        await screen.press("s")
        await screen.app.workers.wait_for_complete()
        second = await screen.text()
        return first, second, await screen.press("escape")

    with served_page(status, both) as (found, _):
        first, second, after = drawn(found, see, take_stack=take)
    assert asked == [(("n1",), 4005)] * 2
    assert "stack of rank 5 of llama" in first
    assert "in backward" in first
    assert first.index("model.py:88") < first.index("train.py:10")
    assert "could not be taken: node-1 is gone" in second
    assert "[2 ranks]" in after


def test_a_stack_that_comes_when_nobody_looks_any_more_disturbs_nothing() -> None:
    looked_away = threading.Event()

    def take(_: object, pid: int) -> tuple[tuple[StackFact, ...], tuple[str, ...]]:
        assert looked_away.wait(30)
        return (StackFact(process=ProcessId("node-1", pid), signature=("late (a.py:1)",)),), ()

    async def see(screen: TopScreen) -> str:
        await screen.press("2", "s", "escape")
        looked_away.set()
        await screen.app.workers.wait_for_complete()
        return await screen.text()

    with served_page(status, both) as (found, _):
        text = drawn(found, see, take_stack=take)
    assert "[2 ranks]" in text
    assert "late" not in text


def test_whoever_quits_does_not_wait_for_a_stack_under_way() -> None:
    begun, released = threading.Event(), threading.Event()
    ended: list[bool] = []

    def take(_: object, __: int) -> tuple[tuple[StackFact, ...], tuple[str, ...]]:
        begun.set()
        ended.append(released.wait(30))
        return (), ()

    async def see(screen: TopScreen) -> bool:
        await screen.press("2", "s")
        return await asyncio.to_thread(begun.wait, 30)

    with served_page(status, both) as (found, _):
        assert drawn(found, see, take_stack=take)
    assert ended == []
    released.set()


def test_a_timer_that_fires_while_the_panes_are_taken_down_disturbs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fired: list[str] = []

    async def see(screen: TopScreen) -> TopApp:
        app = screen.app

        async def fire(pane: RowsPane, _: events.Unmount) -> None:
            fired.append(str(pane.id))
            app.on_resize(events.Resize(app.size, app.size))  # draw all of it again
            app.redraw()

        monkeypatch.setattr(RowsPane, "on_unmount", fire, raising=False)
        return app

    with served_page(status, both) as (found, _):
        app = drawn(found, see)
    assert len(fired) == len(PANES)
    app.redraw()


def test_where_ray_is_not_reached_the_command_for_a_stack_is_named() -> None:
    async def see(screen: TopScreen) -> str:
        await screen.press("2", "s")
        await screen.app.workers.wait_for_complete()
        return await screen.text()

    with served_page(status, both) as (found, _):
        text = drawn(found, see)
    assert "ray-sentinel dump --job llama" in text


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
        for key in "123456":
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
        return [await screen.press(key, "enter", "up", "pagedown") for key in "123456"]

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
        return [await screen.press(key) for key in "123456"]

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
