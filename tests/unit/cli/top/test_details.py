"""What is told of one rank: its own stack, else the merged ones of its job."""

from __future__ import annotations

import msgspec

from ray_sentinel.cli.top.details import MOST_LINES, joined, of_incident, of_process
from ray_sentinel.cli.top.process_lines import ProcessLine, accused_pids, process_lines
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.stacks import StackFact
from tests.support.page_data import incident, status


def stack(rank: int, host: str, pid: int, *places: str) -> StackFact:
    process = ProcessId(host=host, pid=pid, start=1)
    return StackFact(process=process, rank=RankId("llama", 1, rank), signature=places)


def with_stacks(*facts: StackFact) -> Incident:
    found = incident()
    assert found.verdict is not None
    return msgspec.structs.replace(
        found, verdict=msgspec.structs.replace(found.verdict, stacks=facts)
    )


CULPRIT = stack(3, "node-1", 4003, "main (train.py:10)", "read (data.py:88)")
WAITER = stack(0, "node-0", 4000, "main (train.py:10)", "all_reduce (dist.py:7)")


def lines(found: Incident) -> dict[str, ProcessLine]:
    told = process_lines(status(), accused_pids((found,)))
    return {line.who: line for line in told if line.job == "llama"}


def told(who: str, found: Incident) -> str:
    return joined(of_process(lines(found)[who], (found,))).plain


def test_a_culprit_is_told_with_its_own_stack_alone() -> None:
    text = told("rank 3", with_stacks(CULPRIT, WAITER))
    assert "named: stopped by a signal" in text
    assert "read (data.py:88)" in text
    assert "all_reduce" not in text


def test_one_that_stands_where_others_do_is_told_with_the_merged_stacks() -> None:
    text = told("rank 5", with_stacks(CULPRIT, WAITER))
    assert "merged stacks of its job" in text
    assert text.index("read (data.py:88)") < text.index("all_reduce (dist.py:7)")


def test_without_stacks_the_key_that_takes_one_is_named() -> None:
    assert "s takes this one's now" in told("rank 5", incident())


def test_only_open_incidents_accuse() -> None:
    assert lines(incident())["rank 3"].accused
    over = msgspec.structs.replace(incident(), state="resolved")
    assert not lines(over)["rank 3"].accused


def test_a_stack_of_five_hundred_frames_and_a_thousand_classes_are_bounded() -> None:
    deep = stack(3, "node-1", 4003, *(f"f{n} (a.py:{n})" for n in range(500)))
    many = with_stacks(deep, *(stack(n, "node-0", n, "f (a.py:1)") for n in range(1000)))
    text = joined(of_incident(many)).plain
    assert text.count("\n") <= MOST_LINES
    assert "outer frames" in text
