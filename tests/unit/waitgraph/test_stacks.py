"""Who holds the others up: every culprit, no innocent, and "cannot tell" where it cannot."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import Explanation, explain
from tests.support.stack_facts import REDUCE, elsewhere, fact, looks, ranks

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stacks"


def strength(found: Explanation) -> float:
    """How strong the proof is by the judge's rules."""
    return max(item.weight for item in found.evidence)


@pytest.mark.parametrize(
    ("activity", "kind"),
    [
        ("sleep", "host-stuck"),
        ("input-wait", "input-wait"),
        ("storage-wait", "storage-wait"),
        ("checkpoint", "storage-wait"),
        ("lock-wait", "lock-deadlock"),
        ("network-wait", "input-wait"),
        ("compile", "startup-stuck"),
        ("unknown", "host-stuck"),
    ],
)
def test_the_one_that_does_not_wait_is_the_culprit(activity: str, kind: str) -> None:
    found = looks(*(fact(r) for r in range(7)), elsewhere(7, activity))
    assert (ranks(found), found.kind) == ([7], kind)
    assert strength(found) >= 0.7
    assert found.waiting == ("ranks 0-6: in all_reduce",)
    assert found.culprits[0].pid == 107
    assert any("7 of 8 wait" in item.text for item in found.evidence)


def test_two_looks_are_surer_than_one() -> None:
    facts = [*(fact(r) for r in range(3)), elsewhere(3)]
    assert explain([facts]).confidence < explain([facts, facts]).confidence


def test_two_culprits_of_different_kinds_are_both_named() -> None:
    found = looks(*(fact(r) for r in range(6)), elsewhere(6, "input-wait"), elsewhere(7, "unknown"))
    assert ranks(found) == [6, 7]


def test_of_two_ranks_the_one_that_does_not_wait() -> None:
    assert ranks(looks(fact(0), elsewhere(1))) == [1]


def test_a_spinning_rank() -> None:
    found = looks(*(fact(r) for r in range(3)), elsewhere(3, "unknown", active=True))
    assert (ranks(found), found.kind) == ([3], "cpu-spin")


def test_a_loop_that_moves_in_place_spins_and_one_that_goes_elsewhere_is_slow() -> None:
    waiting = [fact(r) for r in range(3)]
    loop = [elsewhere(3, "unknown", f"spin (a.py:{line})", active=True) for line in (7, 8)]
    found = explain([[*waiting, loop[0]], [*waiting, loop[1]]])
    assert (ranks(found), found.kind) == ([3], "cpu-spin")
    path = [
        elsewhere(3, "unknown", *places, active=True)
        for places in (("f (a.py:1)", "g (a.py:5)"), ("h (b.py:1)", "i (b.py:5)", "k (b.py:9)"))
    ]
    found = explain([[*waiting, path[0]], [*waiting, path[1]]])
    assert (ranks(found), found.kind) == ([3], "slow")
    assert strength(found) < 0.6


def test_a_stuck_rank_is_named_and_a_moving_one_is_not() -> None:
    waiting = [fact(r) for r in range(4)]
    moving = [
        elsewhere(5, "unknown", "f (a.py:1)", "g (a.py:2)", "h (a.py:3)"),
        elsewhere(5, "unknown", "z (q.py:1)"),
    ]
    found = explain([[*waiting, elsewhere(4), moving[0]], [*waiting, elsewhere(4), moving[1]]])
    assert ranks(found) == [4]


def test_where_most_are_elsewhere_nobody_is_named() -> None:
    found = looks(fact(0), fact(1), *(elsewhere(r, "input-wait") for r in range(2, 8)))
    assert found.culprits == ()
    assert found.confidence <= 0.3


def test_all_in_the_same_collective_is_a_stall_without_a_culprit() -> None:
    found = looks(*(fact(r) for r in range(8)))
    assert (found.kind, found.culprits) == ("stall", ())


def test_all_waiting_for_one_outside_service_is_a_stall() -> None:
    for activity in ("network-wait", "storage-wait", "input-wait"):
        found = looks(*(elsewhere(r, activity) for r in range(8)))
        assert (found.kind, found.culprits) == ("stall", ())


def test_the_same_outside_service_from_different_places_is_a_stall() -> None:
    found = looks(*(elsewhere(r, "network-wait", f"get (a.py:{r % 2})") for r in range(8)))
    assert (found.kind, found.culprits) == ("stall", ())


@pytest.mark.parametrize(("lone", "named"), [(1, [7]), (4, [])])
def test_futexes_at_two_places_are_no_outside_service(lone: int, named: list[int]) -> None:
    """A collective's wait in machine code and a lock's look alike: only their places differ."""
    found = looks(
        *(
            elsewhere(rank, "lock-wait", f"wait (a.py:{rank >= 8 - lone})", waits_for_others=None)
            for rank in range(8)
        )
    )
    assert ranks(found) == named
    assert found.kind == ("lock-deadlock" if named else "unknown")


def test_another_collective_than_everybody_elses() -> None:
    other = fact(5, operation="barrier", signature=(*REDUCE[:2], "barrier (torch/d.py:9)"))
    found = looks(*(fact(r) for r in range(8) if r != 5), other)
    assert (ranks(found), found.kind) == ([5], "collective-mismatch")


def test_two_in_collectives_of_their_own_may_wait_for_each_other() -> None:
    barrier = fact(5, operation="barrier", signature=(*REDUCE[:2], "barrier (torch/d.py:9)"))
    gather = fact(6, operation="all_gather", signature=(*REDUCE[:2], "all_gather (torch/d.py:7)"))
    found = looks(*(fact(r) for r in range(8) if r not in (5, 6)), barrier, gather)
    assert (ranks(found), found.kind) == ([], "collective-mismatch")
    assert "wait in collectives in which nobody else is" in str(found.evidence)


def test_the_same_collective_at_another_line_of_the_program() -> None:
    other = fact(5, signature=(REDUCE[0], "step (train.py:19)", REDUCE[2]))
    found = looks(*(fact(r) for r in range(8) if r != 5), other)
    assert (ranks(found), found.kind) == ([5], "collective-mismatch")


def test_a_few_that_wait_beside_a_crowd_that_hides_another_collective() -> None:
    crowd = [elsewhere(r, "compute", "backward (a.py:4)", waits_for_others=None) for r in range(6)]
    found = looks(*crowd, fact(6))
    assert (ranks(found), found.kind) == ([6], "collective-mismatch")
    assert looks(*crowd, fact(6), times=1).culprits == ()
    busy = [msgspec.structs.replace(one, active=True) for one in crowd]
    assert looks(*busy, fact(6)).culprits == ()
    assert looks(*crowd, fact(6, operation="recv")).culprits == ()


def test_beside_those_who_receive_one_that_waits_for_its_device_is_not_named() -> None:
    device = elsewhere(7, "device-wait", waits_for_others=None)
    assert looks(*(fact(r, operation="recv") for r in range(7)), device).culprits == ()
    assert ranks(looks(*(fact(r) for r in range(7)), device)) == [7]


def test_two_groups_in_two_collectives_accuse_nobody() -> None:
    other = [
        fact(r, operation="all_gather", signature=(*REDUCE[:2], "all_gather (torch/d.py:9)"))
        for r in (4, 5, 6, 7)
    ]
    found = looks(*(fact(r) for r in range(4)), *other)
    assert found.culprits == ()


def test_a_pipeline_whose_stages_all_wait_accuses_nobody() -> None:
    receive = fact(
        0, operation="recv", label="in recv", signature=(REDUCE[0], "recv (torch/d.py:1)")
    )
    found = looks(receive, *(fact(r) for r in range(1, 8)))
    assert (found.kind, found.culprits) == ("unknown", ())


def test_with_a_rank_missing_a_lone_collective_is_not_blamed() -> None:
    """Its partner may be the rank that is not here."""
    other = fact(5, operation="barrier", signature=(*REDUCE[:2], "barrier (torch/d.py:9)"))
    found = looks(*(fact(r) for r in (0, 1, 2, 3, 7)), other)
    assert found.culprits == ()


def test_missing_ranks_are_told_and_not_accused() -> None:
    found = looks(*(fact(r) for r in (0, 1, 3)))
    assert (found.kind, found.culprits) == ("stall", ())
    assert any("rank 2" in item.text for item in found.evidence)


def test_a_process_that_was_gone_is_dead() -> None:
    gone = fact(3, signature=(), activity="unknown", label="", waits_for_others=None,
                error="py-spy: the process was gone when the tool came")  # fmt: skip
    found = looks(*(fact(r) for r in range(3)), gone)
    assert (ranks(found), found.kind) == ([3], "rank-dead")


def test_who_was_gone_and_who_is_elsewhere_are_both_named() -> None:
    gone = fact(7, signature=(), activity="unknown", label="", waits_for_others=None,
                error="py-spy: the process was gone when the tool came")  # fmt: skip
    found = looks(*(fact(r) for r in range(6)), elsewhere(6), gone)
    assert ranks(found) == [6, 7]
    assert [item.text for item in found.evidence if "was gone" in item.text]


def test_a_process_that_could_not_be_read_is_not_accused() -> None:
    refused = fact(3, signature=(), activity="unknown", label="", waits_for_others=None,
                   error="py-spy: ptrace was refused")  # fmt: skip
    found = looks(*(fact(r) for r in range(3)), refused)
    assert found.culprits == ()
    assert any("refused" in item.text for item in found.evidence)


def test_stopped_processes() -> None:
    one = looks(*(fact(r) for r in range(3)), elsewhere(3, "unknown", state="T"))
    assert (ranks(one), one.kind) == ([3], "rank-stopped")
    even_in_a_collective = looks(*(fact(r) for r in range(3)), fact(3, state="T"))
    assert ranks(even_in_a_collective) == [3]
    every = looks(*(fact(r, state="T") for r in range(4)))
    assert (every.kind, every.culprits) == ("paused", ())


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"state": "T"}, "rank-stopped"),
        ({"state": "D"}, "kernel-blocked"),
        ({"keeps_gil": True}, "gil-held"),
    ],
)
def test_what_is_seen_of_one_process_alone_needs_no_other(
    fields: dict[str, object], kind: str
) -> None:
    found = looks(elsewhere(0, "storage-wait", **fields))
    assert (ranks(found), found.kind) == ([0], kind)


def test_of_several_with_a_fault_of_their_own_only_those_in_which_it_lasts_are_named() -> None:
    places = (("f (a.py:1)", "g (a.py:5)"), ("h (b.py:1)", "i (b.py:5)", "k (b.py:9)"))
    waiting = [fact(r) for r in range(6)]
    stands = elsewhere(6, "storage-wait", state="D")
    found = explain(
        [[*waiting, stands, elsewhere(7, "storage-wait", *at, state="D")] for at in places]
    )
    assert (ranks(found), found.kind) == ([6], "kernel-blocked")


def test_half_of_the_ranks_that_are_stopped_are_named_and_more_are_not() -> None:
    half = looks(*(fact(r) for r in range(3)), *(fact(r, state="T") for r in range(3, 6)))
    assert (ranks(half), half.kind) == ([3, 4, 5], "rank-stopped")
    most = looks(*(fact(r) for r in range(2)), *(fact(r, state="T") for r in range(2, 6)))
    assert most.culprits == ()


def test_blocked_in_the_kernel() -> None:
    found = looks(*(fact(r) for r in range(3)), elsewhere(3, "storage-wait", state="D"))
    assert (ranks(found), found.kind) == ([3], "kernel-blocked")
    waiter = looks(*(fact(r) for r in range(3)), fact(3, state="D"))
    assert waiter.culprits == ()


def test_the_gil_kept_in_c() -> None:
    found = looks(*(fact(r) for r in range(3)), elsewhere(3, "unknown", keeps_gil=True))
    assert (ranks(found), found.kind) == ([3], "gil-held")


def test_a_busy_thread_with_the_gil_is_accused_only_if_it_stays_where_it_is() -> None:
    busy = elsewhere(3, "startup", keeps_gil=True, gil_waiters=1, active=True)
    facts = [*(fact(r) for r in range(3)), elsewhere(3, "sleep"), msgspec.structs.replace(
        busy, rank=RankId("j", 0, 4), process=ProcessId("n", 104, 5))]  # fmt: skip
    assert explain([facts]).kind != "gil-held"
    facts = [*(fact(r) for r in range(3)), busy]
    assert (ranks(looks(*facts)), looks(*facts).kind) == ([3], "gil-held")


def test_waiting_for_the_gil_while_the_others_wait() -> None:
    found = looks(
        *(fact(r) for r in range(3)),
        elsewhere(3, "gil-wait", waits_for_others=None),
    )
    assert (ranks(found), found.kind) == ([3], "gil-held")


def test_one_waits_for_its_device_and_the_rest_for_it() -> None:
    found = looks(*(fact(r) for r in range(7)), elsewhere(7, "device-wait", waits_for_others=None))
    assert (ranks(found), found.kind) == ([7], "device-stuck")
    assert strength(found) <= 0.6


def test_kernels_on_the_devices_set_one_apart() -> None:
    wait = {"activity": "device-wait", "signature": ("sync (a.py:1)",), "kernels_listed": True}
    nccl = ("ncclDevKernel_AllReduce_Sum_f32_RING_LL",)
    others = [fact(r, kernels=nccl, **wait) for r in range(3)]
    mine = fact(3, kernels=(*nccl, "gemm_kernel"), **wait)
    found = looks(*others, mine)
    assert (ranks(found), found.kind) == ([3], "device-stuck")
    idle = looks(*others, fact(3, kernels=(), **{**wait, "waits_for_others": None}))
    assert ranks(idle) == [3]
    assert looks(*others, fact(3, kernels=nccl, **wait)).culprits == ()


def test_frames_in_no_table_still_set_the_odd_one_out_apart() -> None:
    crowd = [elsewhere(r, "unknown", "flush (libnew.py:4)") for r in range(7)]
    found = looks(*crowd, elsewhere(7, "unknown", "parse (a.py:9)"))
    assert ranks(found) == [7]
    assert strength(found) <= 0.55


def test_unknown_frames_at_several_lines_of_one_function_are_one_place() -> None:
    crowd = [elsewhere(r, "unknown", f"flush (libnew.py:{r % 3})") for r in range(7)]
    assert ranks(looks(*crowd, elsewhere(7, "unknown", "parse (a.py:9)"))) == [7]


def test_one_at_another_line_of_the_function_in_which_all_others_stand() -> None:
    """They exchange data in an extension, whose wait Python's frames do not show; rank 3 still
    prepares its part."""
    crowd = [elsewhere(r, "unknown", "exchange (model.py:31)") for r in range(3)]
    assert ranks(looks(*crowd, elsewhere(3, "unknown", "exchange (model.py:28)"))) == [3]


@pytest.mark.parametrize("native", [3, 7])
def test_a_look_without_native_frames_sets_nobody_apart(native: int) -> None:
    """Where ``py-spy --native`` failed for some ranks, their stacks end where its frames begin."""

    def seen(number: int, place: str) -> StackFact:
        if number >= native:
            return elsewhere(number, "unknown", "step (train.py:9)", place)
        below = ("at::native::item", "cudaStreamSynchronize")
        return elsewhere(
            number, "unknown", "step (train.py:9)", place, *below, tool="py-spy-native"
        )

    alike = [seen(number, "flush (libnew.py:4)") for number in range(10)]
    assert ranks(looks(*alike)) == []
    assert ranks(looks(*alike[:9], seen(9, "parse (a.py:9)"))) == [9]


def test_waiting_for_the_device_at_several_places_is_still_one_crowd() -> None:
    crowd = [
        elsewhere(r, "device-wait", f"read_loss (train.py:{r})", waits_for_others=None)
        for r in range(6)
    ]
    assert ranks(looks(*crowd, elsewhere(6, "unknown", "parse (a.py:9)"))) == [6]


def test_one_that_waits_for_its_device_at_another_line_than_the_crowd_is_not_apart() -> None:
    crowd = [
        elsewhere(r, "device-wait", "clip (optim.py:4)", waits_for_others=None) for r in range(7)
    ]
    logs = elsewhere(7, "device-wait", "log (train.py:9)", waits_for_others=None)
    assert looks(*crowd, logs).culprits == ()
    assert ranks(looks(*crowd, elsewhere(7, "unknown", "log (train.py:9)"))) == [7]


@pytest.mark.parametrize("activity", ["device-wait", "compute"])
def test_known_elsewhere_beside_those_who_may_wait(activity: str) -> None:
    crowd = [elsewhere(r, activity, waits_for_others=None) for r in range(2)]
    found = looks(*crowd, elsewhere(2, "input-wait"), elsewhere(3, "sleep"))
    assert ranks(found) == [2, 3]
    assert strength(found) <= 0.6
    assert ranks(looks(crowd[0], elsewhere(1, "sleep"))) == [1]


def test_waiters_that_go_on_wait_for_nobody() -> None:
    first = [fact(r) for r in range(4)]
    second = [fact(r, signature=("<module> (x.py:1)", "z (y.py:1)")) for r in range(4)]
    assert explain([[*first, elsewhere(4)], [*second, elsewhere(4)]]).culprits == ()


def test_a_process_in_a_debugger_for_a_moment_is_not_called_stopped() -> None:
    facts = [*(fact(r) for r in range(3)), fact(3, state="t")]
    assert explain([facts]).culprits == ()
    assert ranks(explain([facts, facts])) == [3]


def test_equal_halves_cannot_be_told() -> None:
    half = [elsewhere(r, "unknown", "f (a.py:1)") for r in range(4)]
    other = [elsewhere(r, "unknown", "g (a.py:2)") for r in range(4, 8)]
    found = looks(*half, *other)
    assert (found.kind, found.culprits) == ("unknown", ())


def test_a_crowd_that_moves_does_not_wait() -> None:
    first = [elsewhere(r, "unknown", "f (a.py:1)", "g (a.py:3)", "h (a.py:4)") for r in range(7)]
    second = [elsewhere(r, "unknown", "z (b.py:1)") for r in range(7)]
    odd = elsewhere(7, "unknown", "parse (c.py:9)")
    assert explain([[*first, odd], [*second, odd]]).culprits == ()


def test_helpers_are_left_out() -> None:
    worker = elsewhere(9, "input-wait", rank=None, helper="dataloader worker")
    found = looks(*(fact(r) for r in range(3)), elsewhere(3), worker, worker)
    assert ranks(found) == [3]
    assert [f.helper for f in found.helpers] == ["dataloader worker"]
    assert any("left out" in item.text for item in found.evidence)


def test_a_helper_that_only_the_first_look_could_tell_is_left_out() -> None:
    """The first was by py-spy, which shows the command line, and the second by another tool."""
    facts = [*(fact(r) for r in range(3)), elsewhere(3)]
    launcher = elsewhere(9, "input-wait", rank=None, helper="launcher or helper")
    unknown = elsewhere(9, "input-wait", rank=None)
    assert ranks(explain([[*facts, launcher], [*facts, unknown]])) == [3]


def test_an_idle_worker_is_a_culprit_only_if_it_is_a_rank() -> None:
    waiting = [fact(r) for r in range(3)]
    assert looks(*waiting, elsewhere(3, "idle", rank=None)).culprits == ()
    assert ranks(looks(*waiting, elsewhere(3, "idle"))) == [3]


def test_one_process_alone_is_described_and_not_accused() -> None:
    found = looks(elsewhere(0, "input-wait"))
    assert (found.kind, found.culprits) == ("input-wait", ())
    assert looks(fact(0)).kind == "unknown"


@pytest.mark.parametrize("rounds", [[], [[]], [[], []]])
def test_nothing_to_explain(rounds: list[list[StackFact]]) -> None:
    found = explain(rounds)
    assert (found.kind, found.culprits, found.confidence) == ("unknown", (), 0.0)


def test_a_rank_that_is_missing_from_the_last_look_is_judged_by_its_last_one() -> None:
    facts = [*(fact(r) for r in range(3)), elsewhere(3)]
    assert ranks(explain([facts, facts[:3]])) == [3]


def test_the_same_rank_number_twice() -> None:
    twin = elsewhere(0, process=ProcessId("m", 900, 5))
    found = looks(*(fact(r) for r in range(4)), twin)
    assert [(c.rank, c.host, c.pid) for c in found.culprits] == [(0, "m", 900)]


@pytest.mark.parametrize(
    ("layout", "pid", "kind"),
    [
        ("gloo_plain/plain", 10263, "host-stuck"),
        ("gloo_plain/native", 10263, "host-stuck"),
        ("gloo_ddp/plain", 10331, "host-stuck"),
        ("gloo_ddp/native", 10331, "host-stuck"),
        ("gloo_async/plain", 10398, "host-stuck"),
        ("gloo_async/native", 10398, "host-stuck"),
        ("gloo_mismatch/plain", 10574, "collective-mismatch"),
        ("gloo_mismatch/native", 10574, "collective-mismatch"),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_real_jobs(layout: str, pid: int, kind: str, times: int) -> None:
    facts = [
        classify(trace)
        for path in sorted((FIXTURES / layout).iterdir())
        for trace in parse(path.read_bytes(), ProcessId("node1", 0))
    ]
    assert len(facts) == 4
    found = explain([facts] * times)
    assert [culprit.pid for culprit in found.culprits] == [pid]
    assert found.kind == kind


def test_functions_of_one_c_plus_plus_class_are_different_places() -> None:
    places = (
        "Trainer::forward",
        "Trainer::forward",
        "Trainer::save",
        "Trainer::save",
        "Other::run",
    )
    found = looks(*(elsewhere(r, "unknown", place) for r, place in enumerate(places)))
    assert found.culprits == ()


def texts(found: Explanation) -> list[str]:
    return [item.text for item in found.evidence]


def test_a_number_out_of_all_bounds_costs_nothing() -> None:
    assert ranks(looks(fact(0), fact(1), elsewhere(10**12))) == [10**12]


def test_sentences_count_those_that_they_are_about() -> None:
    doubtful = [elsewhere(r, "device-wait", waits_for_others=None) for r in range(9)]
    told = [text for text in texts(looks(*doubtful, *map(fact, (9, 10)))) if "other ranks" in text]
    assert [text[:8] for text in told] == ["rank 9 i", "rank 10 "]
    assert all("is in all_reduce at" in one and "while 9 other ranks are in" in one for one in told)


def test_one_process_alone_is_not_said_to_be_elsewhere() -> None:
    assert texts(looks(fact(0)))[0] == (
        "only one process was seen: rank 0, in all_reduce at all_reduce (torch/d.py:3), not moving"
    )


def test_where_only_devices_were_compared_those_that_may_wait_are_counted() -> None:
    kernels = [("gemm",), *[("ncclDevKernel_AllReduce",)] * 8]
    found = looks(
        *(
            elsewhere(r, "device-wait", waits_for_others=None, kernels_listed=True, kernels=names)
            for r, names in enumerate(kernels)
        )
    )
    assert (ranks(found), texts(found)[0]) == ([0], "9 of 9 may wait for others: 9 in device-wait")


def test_processes_that_are_gone_are_not_said_to_be_elsewhere() -> None:
    gone = {"signature": (), "label": "", "error": "the process was gone", "waits_for_others": None}
    found = looks(fact(0), fact(1), *(fact(r, **gone) for r in (2, 3, 4)))
    assert found.culprits == ()
    assert "but most do not: 3 gone; who is waited for cannot be told" in texts(found)
