"""Whose exit it was: causes, echoes, mismatches, those that left, and the end of the whole job."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.actions import AskRecorder
from ray_sentinel.engine.verdicts.exits import final_words, is_echo, is_mismatch, is_unclear
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.progress import Exit
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts
from tests.support.engine_sim import Sim

LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:899"
GLOO = (
    "step 31\n"
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
    "96 vs 48. Received data size doesn't match expected size.\n"
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 3, in broken_pipe_test\n'
    "    heartbeat()\n"
    "IndexError: list index out of range\n"
)


def ended(output: str, signal: int | None = None, code: int | None = None) -> Exit:
    rank = Rank(id=RankId("job", 0, 1), process=ProcessId("host", 1, 1), node="n")
    return Exit(rank=rank, at=0.0, order=1, signal=signal, code=code, last_output=output)


def kind_and_named(sim: Sim) -> tuple[FaultKind, list[int | None]]:
    (incident,) = sim.incidents()
    return incident.kind, sim.named()


def test_what_a_traceback_lists_is_no_reason() -> None:
    assert final_words(ended(TRACEBACK, code=1)) == "IndexError: list index out of range"
    assert "heartbeat" not in final_words(ended(TRACEBACK, code=1))
    assert not is_echo(ended(TRACEBACK, code=1))


CRASH = (
    "*** SIGABRT received at time=1795223749 on cpu 1 ***\n"
    "PC: @     0x7fb843aa8eec  (unknown)  (unknown)\n"
    "    @     0x7fb843a5a050       9488  (unknown)\n"
    "[2026-11-21 01:15:49,620 E 25379 25757] logging.cc:474: PC: @     0x7fb843aa8eec  (unknown)\n"
    "Fatal Python error: Aborted\n\n"
    "Extension modules: msgpack._cmsgpack, ray._raylet (total: 2)\n"
)
IN_A_RAY_WORKER = (
    "[2026-11-21 01:15:49,613 E 25379 25757] logging.cc:118: Unhandled exception: "
    "N4gloo13EnforceNotMetE. what(): [enforce fail at gloo/transport/tcp/pair.cc:456] "
    "op.preamble.length <= op.nbytes. 96 vs 48. \n"
    "/v/ray/_raylet.so(+0x181364c) [0x7fb842e1364c] ray::TerminateHandler()\n" + CRASH
)


def test_what_a_crash_handler_prints_is_no_reason() -> None:
    assert final_words(ended(CRASH, signal=6)) == ""
    assert is_unclear(ended(CRASH, signal=6))
    assert is_mismatch(ended(IN_A_RAY_WORKER, signal=6))
    assert "op.preamble" in final_words(ended(GLOO + CRASH, signal=6))


@pytest.mark.parametrize(
    "after", [CRASH, "terminate called without an active exception\n" + CRASH, GLOO + CRASH]
)
def test_an_abort_at_the_end_of_an_interpreter_is_not_what_ended_it(after: str) -> None:
    exit_ = ended(TRACEBACK + after, signal=6)
    assert final_words(exit_).startswith("IndexError: list index out of range")
    assert not is_mismatch(exit_)
    assert not is_unclear(exit_)


def test_standard_error_tells_an_echo_and_a_mismatch() -> None:
    assert is_echo(ended("Traceback (most recent call last):\n  File 'x'\n" + LOST, code=1))
    assert is_mismatch(ended(GLOO, signal=6))
    assert is_unclear(ended("", signal=6))
    assert not is_unclear(ended("malloc(): corrupted top size\n", signal=6))


@pytest.mark.parametrize("attached", [True, False])
def test_who_falls_into_a_mismatch_first_is_not_blamed(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.end(2, signal=6, output=GLOO)
    for number in (0, 1, 3):
        sim.end(number, code=1, words=LOST if attached else "")
    sim.run(10)
    assert kind_and_named(sim) == ("collective-mismatch", [])


def test_the_recorders_that_the_dead_left_tell_whose_call_was_wrong() -> None:
    sim = Sim()
    sim.recorder = RecorderFacts(
        kind="collective-mismatch",
        strength=0.85,
        culprits=(RecorderCulprit(rank=3, kind="collective-mismatch", reason="another size"),),
    )
    sim.run(30)
    sim.end(2, signal=6, output=GLOO)
    for number in (0, 1, 3, 4, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert kind_and_named(sim) == ("collective-mismatch", [3])


def test_the_recorders_of_ranks_that_failed_are_read_as_such() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(2, signal=6, output=GLOO)
    for number in (0, 1, 3, 4, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    asked = [action for action in sim.actions if isinstance(action, AskRecorder)]
    assert {(action.failed, action.overrun) for action in asked} == {(True, (2,))}


def test_the_recorders_of_a_job_that_hangs_are_read_as_such() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(3)
    sim.run(30)
    asked = [action for action in sim.actions if isinstance(action, AskRecorder)]
    assert {(action.failed, action.overrun) for action in asked} == {(False, ())}


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_who_sent_all_others_more_than_they_had_asked_for_is_named(
    attached: bool, ends: bool
) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, signal=6, output=GLOO)
    if ends:
        sim.end(4, code=1, words=LOST if attached else "")
    sim.run(10)
    assert kind_and_named(sim) == ("collective-mismatch", [4])
    assert "more than it had asked for" in sim.incidents()[0].verdict.evidence[0].text


def test_where_two_were_not_sent_too_much_neither_is_named() -> None:
    sim = Sim()
    sim.run(30)
    for number in (0, 1, 2, 3):
        sim.end(number, signal=6, output=GLOO)
    for number in (4, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert kind_and_named(sim) == ("collective-mismatch", [])


@pytest.mark.parametrize("attached", [True, False])
def test_who_leaves_before_all_others_fall_is_named(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.end(4, code=0)
    sim.run(1)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, code=1, words=LOST if attached else "")
    sim.run(10)
    assert kind_and_named(sim) == ("rank-dead", [4])


def test_who_leaves_and_aborts_on_its_way_out_is_named() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(4, signal=6, said_at=sim.now)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert kind_and_named(sim) == ("rank-dead", [4])


def test_an_abort_without_a_word_before_it_is_as_unclear_as_ever() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(4, signal=6)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert sim.named() == []


def test_a_rank_that_falls_by_itself_is_named_though_another_left_before() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(4, code=0)
    sim.end(1, code=1, words="ValueError: bad batch")
    sim.run(10)
    assert kind_and_named(sim) == ("rank-dead", [1])


def test_a_job_that_is_killed_as_a_whole_is_no_incident() -> None:
    sim = Sim()
    sim.run(30)
    for number in range(6):
        sim.end(number, signal=9)
    sim.run(20)
    assert sim.incidents() == ()


def test_an_exception_is_named_before_its_process_has_gone() -> None:
    sim = Sim()
    sim.run(30)
    sim.rank(3).words = "ValueError: bad batch"
    sim.rank(3).words_at = sim.now
    sim.rank(3).stuck = True
    began = sim.now
    sim.run(5)
    assert kind_and_named(sim) == ("rank-dead", [3])
    confirmed = sim.incidents()[0].confirmed_at
    assert confirmed is not None
    assert confirmed - began <= 4
    sim.end(3, code=1, words="ValueError: bad batch")
    sim.run(20)
    assert len(sim.incidents()) == 1


def test_who_takes_its_time_to_go_is_missed_only_when_it_has_gone() -> None:
    sim = Sim()
    sim.run(30)
    said = sim.now
    sim.run(8)
    sim.end(4, code=0, said_at=said)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert kind_and_named(sim) == ("rank-dead", [4])


@pytest.mark.parametrize("said_after", [0.5, 1.0])
def test_the_kernel_tells_why_a_rank_was_killed_a_moment_after_its_exit(said_after: float) -> None:
    sim = Sim()
    sim.run(30)
    sim.end(2, signal=9)
    sim.run(said_after)
    sim.kernel_says_oom(2)
    sim.run(10)
    assert kind_and_named(sim) == ("oom-killed", [2])


def test_a_rank_that_alone_is_told_to_end_is_named() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(3, signal=15)
    for number in (0, 1, 2, 4, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert kind_and_named(sim) == ("rank-dead", [3])


@pytest.mark.parametrize("told", [(0, 1, 2, 3, 4, 5), (2, 3), (0, 3, 5), (0, 1, 2)])
def test_who_ends_the_job_or_a_node_accuses_nobody(told: tuple[int, ...]) -> None:
    sim = Sim()
    sim.run(30)
    for number in told:
        sim.end(number, signal=15)
    for number in set(range(6)) - set(told):
        sim.end(number, code=1, words=LOST)
    sim.run(10)
    assert sim.incidents() == ()


@pytest.mark.parametrize(
    ("words", "echo"),
    [
        ("EOFError: Ran out of input", False),
        ("EOFError: Compressed file ended before the end-of-stream marker was reached", False),
        ("FileNotFoundError: No such file: '/data/peer_reviews/train.jsonl'", False),
        ("FileNotFoundError: No such file: '/data/peer/train.jsonl'", False),
        ("RuntimeError: expected sizeof(T) == 4", False),
        ("EOFError", True),
        ("RuntimeError: unexpected EOF on the connection", True),
        ("RuntimeError: Connection reset by peer", True),
        ("RuntimeError: lost peers 3 and 4", True),
    ],
)
def test_a_rank_s_own_trouble_is_no_echo(words: str, echo: bool) -> None:
    assert is_echo(ended(f"Traceback (most recent call last):\n{words}\n", code=1)) is echo


def test_who_reads_a_truncated_file_is_the_culprit() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(3, code=1, words="EOFError: Ran out of input")
    sim.run(0.5)
    for number in (0, 1, 2, 4, 5):
        sim.end(number, code=1, words=LOST)
    sim.run(20)
    assert kind_and_named(sim) == ("rank-dead", [3])
