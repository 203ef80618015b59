"""Streams of what the page shows, without a socket."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from ray_sentinel.http.server import Request, Response
from ray_sentinel.web import live as module
from ray_sentinel.web.live import MOST_STREAMS, PAGE, Live

Told = dict[str, Any]
PACKED = {"accept-encoding": "gzip"}


class Shown:
    """What a test shows, one look after the other."""

    def __init__(self) -> None:
        self.looks: queue.Queue[Told | None] = queue.Queue()
        self.waits = threading.Semaphore(0)
        """Grows with each look that begins."""
        self.names: frozenset[str] = frozenset()
        """What the last look that has ended was asked for."""

    def __call__(self, names: frozenset[str]) -> Told:
        self.waits.release()
        told = self.looks.get(timeout=20)
        if told is None:
            raise ValueError("no state")
        self.names = names
        return {name: told if name == PAGE else [name, told.get(name)] for name in names}


def chosen(query: str) -> str | None:
    if query == "nothing":
        raise ValueError("there is no such thing")
    return query or None


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def live(shown: Shown) -> Iterator[Live]:
    made = Live(shown, chosen, seconds=0.0)
    yield made
    shown.looks.put({})  # for a look that waits
    made.close()


def opened(live: Live, query: str = "", **headers: str) -> AsyncGenerator[bytes, None]:
    response = answer(live, headers, query)
    assert response.stream is not None
    return response.stream()


def answer(live: Live, headers: dict[str, str], query: str = "") -> Response:
    return live.answer(Request(method="GET", path="/api/v1/live", headers=headers, query=query))


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(), 20)

    asyncio.run(bounded())


def read(piece: bytes) -> tuple[str, Any]:
    """The name of an event, and what it tells."""
    name, data, *rest = piece.decode().split("\n")
    assert rest == ["", ""]
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_the_whole_comes_first_and_then_what_changed(shown: Shown, live: Live) -> None:
    async def story() -> None:
        stream = opened(live)
        shown.looks.put({"a": 1, "b": [1, 2, 3]})
        assert read(await anext(stream)) == ("whole", {"a": 1, "b": [1, 2, 3]})
        shown.looks.put({"a": 1, "b": [1, 2, 4]})
        assert read(await anext(stream)) == ("change", [[["b"], [2], [4]]])
        shown.looks.put({"a": 1, "b": [1, 2, 4]})
        assert read(await anext(stream)) == ("change", [])
        await stream.aclose()

    run(story)


def test_all_streams_are_told_by_one_look(shown: Shown, live: Live) -> None:
    async def story() -> None:
        first = opened(live)
        shown.looks.put({"a": 1})
        assert read(await anext(first))[0] == "whole"
        second = opened(live)
        assert read(await anext(second)) == ("whole", {"a": 1}), "what is known already"
        shown.looks.put({"a": 2})
        assert [read(await anext(one)) for one in (first, second)] == 2 * [("change", [[["a"], 2]])]
        await first.aclose()
        await second.aclose()

    run(story)


def test_who_was_too_slow_for_a_change_is_told_the_whole(shown: Shown, live: Live) -> None:
    async def story() -> None:
        slow, fast = opened(live), opened(live)
        shown.looks.put({"a": 0})
        assert [read(await anext(one))[0] for one in (slow, fast)] == ["whole", "whole"]
        for number in (1, 2, 3):
            shown.looks.put({"a": number})
            assert read(await anext(fast)) == ("change", [[["a"], number]])
        assert read(await anext(slow)) == ("whole", {"a": 3})
        shown.looks.put({"a": 4})
        assert read(await anext(slow)) == ("change", [[["a"], 4]])
        await slow.aclose()
        await fast.aclose()

    run(story)


def test_a_packed_stream_is_one_gzip_member_of_shared_parts(shown: Shown, live: Live) -> None:
    async def story() -> None:
        early = opened(live, **PACKED)
        shown.looks.put({"text": 50 * "the same again "})
        pieces = [await anext(early), await anext(early)]
        shown.looks.put({"text": 60 * "the same again "})
        pieces.append(await anext(early))
        late = opened(live, **PACKED)
        others = [await anext(late), await anext(late)]
        shown.looks.put({"text": 70 * "the same again "})
        pieces.append(await anext(early))
        others.append(await anext(late))
        assert pieces[-1] is others[-1], "packed once"
        for told in (pieces, others):
            unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
            texts = [unpacker.decompress(piece) for piece in told]
            assert texts[0] == b""
            assert [read(text)[0] for text in texts[1:]] == ["whole", *["change"] * (len(told) - 2)]
        assert sum(map(len, pieces)) < 400
        await early.aclose()
        await late.aclose()

    run(story)


def test_nobody_looks_without_a_stream(shown: Shown, live: Live) -> None:
    async def story() -> None:
        stream = opened(live)
        shown.looks.put({"a": 1})
        await anext(stream)
        await stream.aclose()

    run(story)
    shown.looks.put({"a": 2})  # of a look that has begun meanwhile
    begun = 0
    while shown.waits.acquire(timeout=0.2):
        begun += 1
    assert begun <= 2


def test_there_are_so_many_streams_and_no_more(shown: Shown, live: Live) -> None:
    async def story() -> None:
        shown.looks.put({"a": 1})
        streams = [opened(live) for _ in range(MOST_STREAMS)]
        waiting = opened(live)
        for stream in streams:
            assert read(await anext(stream))[0] == "whole"
        assert answer(live, {}).status == 503
        with pytest.raises(StopAsyncIteration):  # it was let in when there was room
            await anext(waiting)
        await streams.pop().aclose()
        assert answer(live, {}).status == 200
        for stream in streams:
            await stream.aclose()

    run(story)


def test_streams_end_where_nothing_can_be_shown(shown: Shown, live: Live) -> None:
    async def story() -> None:
        stream = opened(live)
        shown.looks.put({"a": 1})
        await anext(stream)
        shown.looks.put(None)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        again = opened(live)
        shown.looks.put({"a": 2})
        assert read(await anext(again)) == ("whole", {"a": 2})
        await again.aclose()

    run(story)


def test_streams_end_where_what_is_shown_is_no_text(shown: Shown, live: Live) -> None:
    async def story() -> None:
        stream = opened(live)
        shown.looks.put({"path": b"caf\xe9".decode("utf-8", "surrogateescape")})
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        again = opened(live)
        shown.looks.put({"path": "caf\xe9"})
        assert read(await anext(again)) == ("whole", {"path": "caf\xe9"})
        await again.aclose()

    run(story)


def test_a_stream_to_which_nothing_is_told_ends(
    shown: Shown, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.05)

    async def story() -> None:
        with pytest.raises(StopAsyncIteration):  # the look hangs
            await anext(opened(live))

    run(story)


def each(piece: bytes) -> list[tuple[str, Any]]:
    """The events of one piece."""
    return [read(one + b"\n\n") for one in piece.split(b"\n\n")[:-1]]


def test_what_a_client_has_chosen_comes_before_the_page_of_the_same_look(
    shown: Shown, live: Live
) -> None:
    async def story() -> None:
        plain, choosing = opened(live), opened(live, "power")
        events: list[tuple[str, Any]] = []
        number = 0
        while len(events) < 2:  # a look that has begun before knows nothing of it
            number += 1
            shown.looks.put({"power": [1, 2, number]})
            of_plain, events = each(await anext(plain)), each(await anext(choosing))
            assert len(of_plain) == 1
        assert events[0] == ("levels", ["power", [1, 2, number]])
        shown.looks.put({"power": [1, 2, number + 1]})
        assert each(await anext(choosing)) == [
            ("level-change", [[[1], [2], [number + 1]]]),
            ("change", [[["power"], [2], [number + 1]]]),
        ]
        assert [name for name, _ in each(await anext(plain))] == ["change"]
        await plain.aclose()
        await choosing.aclose()

    run(story)


def test_what_nobody_has_chosen_any_more_is_not_looked_for(shown: Shown, live: Live) -> None:
    async def story() -> None:
        plain, choosing = opened(live), opened(live, "power")
        while "power" not in shown.names:
            shown.looks.put({"a": 1})
            await anext(plain)
            await anext(choosing)
        await choosing.aclose()
        for _ in range(2):  # one of them has begun before
            shown.looks.put({"a": 2})
            await anext(plain)
        assert shown.names == {PAGE}
        await plain.aclose()

    run(story)


def test_what_cannot_be_chosen_is_refused(live: Live) -> None:
    assert answer(live, {}, "nothing").status == 400
