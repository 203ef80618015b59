"""One rank as its view asks for it: the question, its series, and the end of its output."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from ray_sentinel.http.server import Request, Response
from ray_sentinel.model.incident import RankLog, RankOutput
from ray_sentinel.model.last_hour import RankAsked, RankPlot, RankSeries
from ray_sentinel.web.rank import MOST_READERS, SHOWN_BYTES, OutputReader, asked, series
from tests.support.page_data import HOSTILE

QUESTION = "job=llama&attempt=1&rank=3&place=node-1+4003"
ASKED = RankAsked(job="llama", attempt=1, rank=3, place="node-1 4003")


def request(query: str = QUESTION) -> Request:
    return Request(method="GET", path="/", headers={}, query=query)


def output(text: bytes, **more: Any) -> RankOutput:
    return RankOutput(log=RankLog(rank=3, host="node-1", pid=4003, **more), data=text)


def read(response: Response) -> dict[str, Any]:
    """The answer, whether it is ready or comes as a stream."""

    async def pieces() -> bytes:
        assert response.stream is not None
        return b"".join([piece async for piece in response.stream()])

    body = response.body if response.stream is None else asyncio.run(pieces())
    told: dict[str, Any] = json.loads(body)
    return told


def test_a_question_names_one_rank() -> None:
    assert asked(QUESTION) == ASKED
    assert asked("job=a%2Fb&attempt=0&rank=0") == RankAsked(job="a/b", attempt=0, rank=0)


@pytest.mark.parametrize(
    "query",
    [
        "", "job=a", "job=a&attempt=0", "job=a&attempt=x&rank=1", "job=a&attempt=0&rank=-1",
        "job=a&attempt=0&rank=1" + 2000 * "0", "job=&attempt=0&rank=1", "job=a&attempt=0&rank=٣",
        "&".join(f"f{n}=1" for n in range(20)),
    ],
)  # fmt: skip
def test_what_is_no_question_is_refused(query: str) -> None:
    with pytest.raises(ValueError):
        asked(query)
    assert series(lambda _: None, request(query)).status == 400
    assert OutputReader(lambda _: None).answer(request(query)).status == 400


def test_the_series_of_a_rank_and_of_one_that_is_gone() -> None:
    plot = RankPlot(name="time per step", unit="seconds", points=((1.0, 0.5),))
    found = RankSeries(begin=1.0, end=2.0, plots=(plot,))
    assert read(series({ASKED: found}.get, request()))["plots"][0]["points"] == [[1.0, 0.5]]
    gone = series({ASKED: found}.get, request("job=llama&attempt=1&rank=4"))
    assert (gone.status, gone.body) == (200, b"null")


def test_what_a_rank_wrote_is_read_off_the_servers_thread_and_bounded() -> None:
    threads = []

    def look(rank: RankAsked) -> RankOutput:
        threads.append(threading.current_thread())
        assert rank == ASKED
        text = 2 * SHOWN_BYTES * b"x" + HOSTILE.encode()
        return output(text, sources=("stdout: /a",), shared=True)

    told = read(OutputReader(look).answer(request()))
    assert told["text"].endswith(HOSTILE)
    assert len(told["text"]) <= SHOWN_BYTES
    assert (told["shared"], told["sources"], told["ended"]) == (True, ["stdout: /a"], False)
    assert threads != [threading.current_thread()]


def test_why_there_is_no_output_is_told() -> None:
    assert read(OutputReader(lambda _: output(b"", missing="a pipe")).answer(request()))[
        "missing"
    ] == "a pipe"  # fmt: skip
    assert "no such rank" in read(OutputReader(lambda _: None).answer(request()))["error"]

    def fails(_: RankAsked) -> RankOutput:
        raise OSError("the disk")

    assert "cannot be read" in read(OutputReader(fails).answer(request()))["error"]


def test_few_are_read_at_one_time_and_then_others_again() -> None:
    go = threading.Event()

    def waits(_: RankAsked) -> RankOutput:
        assert go.wait(10)
        return output(b"line")

    reader = OutputReader(waits)

    async def together() -> list[int]:
        streams = [reader.answer(request()).stream for _ in range(MOST_READERS)]
        tasks = [asyncio.ensure_future(anext(one())) for one in streams if one is not None]
        await asyncio.wait(tasks, timeout=0)
        busy = reader.answer(request()).status
        go.set()
        await asyncio.gather(*tasks)
        return [busy]

    assert asyncio.run(together()) == [503]
    assert read(reader.answer(request()))["text"] == "line"


def test_whoever_goes_away_makes_no_room_for_others_while_a_node_is_still_asked() -> None:
    began, go, done = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)

    def waits(_: RankAsked) -> RankOutput:
        began.release()
        assert go.wait(10)
        done.release()
        return output(b"line")

    reader = OutputReader(waits)

    async def cut() -> int:
        streams = [reader.answer(request()).stream for _ in range(MOST_READERS)]
        tasks = [asyncio.ensure_future(anext(one())) for one in streams if one is not None]
        await asyncio.wait(tasks, timeout=0)
        for task in tasks:
            assert began.acquire(timeout=10)
            task.cancel()
        await asyncio.wait(tasks)
        busy = reader.answer(request()).status
        go.set()
        return busy

    assert asyncio.run(cut()) == 503
    assert all(done.acquire(timeout=10) for _ in range(MOST_READERS))
