"""Which failures a restart may cure, and which exceptions are the same one."""

from __future__ import annotations

import pytest

from ray_sentinel.supervise.curable import HUB_TRIES, incurable, normalised
from ray_sentinel.supervise.policy import Failure


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Failure(kind="exit", text="", code=127), "not found"),
        (Failure(kind="exit", text="", code=126), "not executable"),
        (Failure(kind="not-started", text="Argument list too long", code=127), "list too long"),
        (Failure(kind="exit", text="", code=2, seconds=1.0), "called wrongly"),
        (Failure(kind="missing-env", text="RANK is missing", code=1), "configuration"),
        (Failure(kind="x", text="", exception="FileNotFoundError: data.bin", code=1), "missing"),
    ],
)
def test_failures_that_a_restart_cannot_cure(failure: Failure, says: str) -> None:
    assert says in incurable(failure, [])


@pytest.mark.parametrize(
    "failure",
    [
        Failure(kind="exit", text="", code=2, seconds=500.0),
        Failure(kind="not-started", text="Resource temporarily unavailable", code=127),
        Failure(kind="not-started", text="Cannot allocate memory", code=127),
        Failure(kind="exit", text="", code=2, seconds=1.0, step=10),
        Failure(kind="x", text="", exception="FileNotFoundError: shard-N", code=1, step=500),
        Failure(kind="signal", text="", signal=9),
        Failure(kind="nccl-timeout", text="", code=1),
        Failure(kind="transport-lost", text="", code=1),
        Failure(kind="startup-stuck", text="", code=1),
        Failure(kind="checkpoint-load", text="", exception="FileNotFoundError: optimizer.pt"),
        Failure(kind="exit", text="", code=127, began=True),
    ],
)
def test_failures_that_it_may_cure(failure: Failure) -> None:
    assert incurable(failure, []) == ""


def test_a_hub_out_of_reach_is_waited_for_but_not_for_ever() -> None:
    away = Failure(kind="hub-unreachable", text="503 Server Error", code=1, seconds=30.0)
    other = Failure(kind="preempted", text="")
    for tries in range(HUB_TRIES - 1):
        assert incurable(away, [away] * tries) == ""
    assert "HF_HUB_OFFLINE" in incurable(away, [away] * (HUB_TRIES - 1))
    assert incurable(away, [*[away] * (HUB_TRIES - 1), other]) == "", "in a row"


def test_an_expired_token_is_no_outage() -> None:
    failure = Failure(kind="config", text="401 Client Error: Unauthorized", code=1)
    assert "configuration" in incurable(failure, [])


def test_equal_exceptions_are_equal_whatever_their_numbers() -> None:
    one = normalised("RuntimeError: CUDA error at 0x7f00 on rank 3")
    assert one == normalised("RuntimeError: CUDA error at 0x7fff on rank 12")
    assert one != normalised("RuntimeError: NCCL error at 0x7fff on rank 12")
