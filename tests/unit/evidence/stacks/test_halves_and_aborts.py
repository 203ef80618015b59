"""What stacks cannot tell, and what they can: two halves, aborts, code that hides a device wait."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.readers.sources import ranks_of_titles
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.stacks import explain
from tests.support.stack_facts import elsewhere, fact, looks, ranks
from tests.support.stack_lines import main_fact


@pytest.mark.parametrize("size", [2, 3, 8])
def test_two_halves_in_different_places_name_nobody(size: int) -> None:
    waiting = [fact(number) for number in range(size)]
    others = [elsewhere(size + number, "input-wait") for number in range(size)]
    found = looks(*waiting, *others)
    assert ranks(found) == []
    assert any("other half" in item.text for item in found.evidence)


def test_two_of_four_that_are_stuck_each_in_its_own_way_are_named() -> None:
    found = looks(fact(0), fact(1), elsewhere(2, "input-wait"), elsewhere(3, "sleep"))
    assert ranks(found) == [2, 3]


@pytest.mark.parametrize(
    "line",
    [
        "partition_grads deepspeed/runtime/zero/stage3.py:1500",
        "reduce_ipg_grads deepspeed/runtime/zero/stage_1_and_2.py:1400",
        "has_overflow deepspeed/runtime/utils.py:190",
        "clip_grad_norm_ torch/nn/utils/clip_grad.py:60",
        "_unscale_grads_ torch/amp/grad_scaler.py:280",
        "_multi_tensor_adamw torch/optim/adamw.py:500",
        "get_grad_norm megatron/core/optimizer/optimizer.py:160",
    ],
)
def test_code_that_hides_a_wait_for_the_device_is_no_place_apart(line: str) -> None:
    found = main_fact(line, "train mine.py:3")
    assert (found.waits_for_others, found.activity) == (None, "compute")


def test_who_reads_data_while_the_others_hide_in_their_gradients_is_named() -> None:
    hidden = main_fact("partition_grads deepspeed/runtime/zero/stage3.py:1500", "train mine.py:3")
    crowd = [fact(number, signature=hidden.signature, activity=hidden.activity, operation="",
                  label=hidden.label, waits_for_others=None) for number in range(5)]  # fmt: skip
    assert ranks(looks(*crowd, elsewhere(5, "input-wait"))) == [5]


@pytest.mark.parametrize(
    ("titles", "found"),
    [
        (["sglang::scheduler_PP2_TP1"], {}),
        (["sglang::scheduler_PP0_TP0", "sglang::scheduler_PP1_TP1"], {}),
        (["sglang::scheduler_TP3"], {"sglang::scheduler_TP3": 3}),
        ([f"sglang::scheduler_PP{p}_TP{t}" for p in (0, 1) for t in (0, 1)],
         {f"sglang::scheduler_PP{p}_TP{t}": 2 * p + t for p in (0, 1) for t in (0, 1)}),
    ],
)  # fmt: skip
def test_a_world_rank_follows_from_titles_only_where_they_tell_how_wide_a_stage_is(
    titles: list[str], found: dict[str, int]
) -> None:
    assert ranks_of_titles(titles) == found


GDB = """\
Thread 3 (Thread 0x7f11 (LWP 1052) "pt_nccl_watchdg"):
#0  0x00007f2a in futex_wait () from /lib/libc.so.6
#1  0x00007f2b in ncclCommAbort () from /usr/lib/libnccl.so.2
#2  0x00007f2c in c10d::ProcessGroupNCCL::abortCommsFromMap () from libtorch_cuda.so

Thread 1 (Thread 0x7f10 (LWP {pid}) "python"):
#0  0x00007f2d in __lll_lock_wait () from /lib/libc.so.6
#1  0x00007f2e in c10d::ProcessGroupNCCL::WorkNCCL::wait () from libtorch_cuda.so
#2  0x00007f2f in _PyEval_EvalFrameDefault ()
"""


def test_an_abort_that_does_not_end_is_told_and_accuses_nobody() -> None:
    facts = []
    for number in range(4):
        pid = 50 + number
        (trace,) = parse(GDB.format(pid=pid), ProcessId("n", pid, 1))
        facts.append(classify(trace))
    assert all(one.aborts for one in facts)
    found = explain([facts, facts])
    assert (ranks(found), found.kind) == ([], "lock-deadlock")
    assert any("ncclCommAbort" in item.text for item in found.evidence)
