"""What a companion answers about its process: stacks and flight recorders."""

import json
import threading
from types import ModuleType

import pytest

from ray_sentinel.progress.rank import answers
from ray_sentinel.progress.requests import (
    RECORDER_JSON_ANSWER,
    RECORDER_PICKLE_ANSWER,
    ProgressRequest,
    answer_name,
    pack_request,
    unpack_request,
)


def test_stacks_of_all_threads():
    held = threading.Event()
    ready = threading.Event()

    def innermost() -> None:
        ready.set()
        held.wait(10)

    thread = threading.Thread(target=innermost, name="loader")
    thread.start()
    ready.wait(10)
    try:
        found = {item["thread_name"]: item for item in json.loads(answers.stacks())}
    finally:
        held.set()
        thread.join()
    assert found["loader"]["os_thread_id"] == thread.native_id
    assert "innermost" in [frame["name"] for frame in found["loader"]["frames"]]
    names = [frame["name"] for frame in found["MainThread"]["frames"]]
    assert names[:2] == ["stacks", "test_stacks_of_all_threads"]


def bindings(**functions) -> dict[str, ModuleType]:
    module = ModuleType("fake")
    for name, function in functions.items():
        setattr(module, name, function)
    return {"torch._C._distributed_c10d": module}


def test_flight_recorder():
    found = answers.flight_recorder(
        bindings(_dump_nccl_trace=lambda: b"pickle", _dump_fr_trace_json=lambda: b"{}")
    )
    assert found == {RECORDER_PICKLE_ANSWER: b"pickle", RECORDER_JSON_ANSWER: b"{}"}


def test_one_recorder_that_fails_does_not_hide_the_other():
    def fails() -> bytes:
        raise RuntimeError("NCCL error")

    found = answers.flight_recorder(
        bindings(_dump_nccl_trace=fails, _dump_fr_trace_json=lambda: b"{}")
    )
    assert found == {RECORDER_JSON_ANSWER: b"{}"}
    with pytest.raises(answers.AnswerError, match="NCCL error"):
        answers.flight_recorder(bindings(_dump_nccl_trace=fails))


def test_without_torch():
    with pytest.raises(answers.AnswerError, match="not loaded"):
        answers.flight_recorder({})
    with pytest.raises(answers.AnswerError, match="no flight recorder"):
        answers.flight_recorder(bindings())


def test_request_words():
    word = pack_request(7, ProgressRequest.STACKS | ProgressRequest.FLIGHT_RECORDER)
    assert unpack_request(word) == (7, ProgressRequest.STACKS | ProgressRequest.FLIGHT_RECORDER)
    assert (
        unpack_request(word | 0x80)[1] == ProgressRequest.STACKS | ProgressRequest.FLIGHT_RECORDER
    )
    assert pack_request((1 << 60) + 3, ProgressRequest.STACKS) < 1 << 64
    assert answer_name("a-r0.record", "x.txt") == "a-r0.x.txt"
