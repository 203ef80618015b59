"""Inference engines: without requests they stand still and are well; at work they may hang."""

from __future__ import annotations

import pytest

from tests.support.engine_sim import Sim, SimRank

SGLANG = (
    "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)",
    "event_loop_normal (sglang/srt/managers/scheduler.py:990)",
)
RECEIVES = (
    *SGLANG,
    "recv_requests (sglang/srt/managers/scheduler.py:1100)",
    "broadcast_pyobj (sglang/srt/utils/common.py:1200)",
    "broadcast (torch/distributed/distributed_c10d.py:2700)",
)
RESTS = (
    *SGLANG,
    "on_idle (sglang/srt/managers/scheduler.py:1010)",
    "maybe_sleep (sglang/srt/managers/scheduler_components/idle_sleeper.py:30)",
    "poll (zmq/sugar/poll.py:106)",
)
FORWARD = (
    *SGLANG,
    "run_batch (sglang/srt/managers/scheduler.py:2100)",
    "forward (sglang/srt/models/llama.py:500)",
)
VLLM = (
    "worker_main (vllm/v1/executor/multiproc_executor.py:600)",
    "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:700)",
)
DEQUEUES = (
    *VLLM,
    "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:600)",
    "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:500)",
)
EXECUTES = (*VLLM, "execute_model (vllm/v1/worker/gpu_worker.py:500)")


def put(rank: SimRank, where: tuple[str, ...], activity: str, waits: bool | None) -> None:
    rank.stuck = True
    rank.where, rank.activity, rank.waits = where, activity, waits  # type: ignore[assignment]


def server(world: int = 4) -> Sim:
    """An engine that has served for a while; nobody attached to it."""
    sim = Sim(world=world, nodes=2, attached=False)
    for rank in sim.ranks:
        rank.role = "engine"
    sim.run(60)
    sim.held = True
    return sim


@pytest.mark.parametrize("engine", ["polls", "rests", "vllm"])
def test_without_requests_it_is_well(engine: str) -> None:
    sim = server()
    for rank in sim.ranks:
        if engine == "vllm":
            put(rank, DEQUEUES, "collective-wait", True)
        elif engine == "rests" and rank.number == 0:
            put(rank, RESTS, "network-wait", False)
        else:
            put(rank, RECEIVES, "collective-wait", True)
    sim.run(400)
    assert sim.incidents() == ()
    told = sim.engine.status(sim.now)
    state, sentence = told.state, told.verdict
    assert state == "healthy", sentence
    assert len(sim.engine.incidents(everything=True)) < 3, "nor is it suspected over and over"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_rank_that_does_not_come_out_of_its_batch_is_named(engine: str) -> None:
    sim = server()
    for rank in sim.ranks:
        if rank.number == 2:
            put(rank, FORWARD if engine == "sglang" else EXECUTES, "compute", False)
        elif engine == "vllm":
            put(rank, DEQUEUES, "collective-wait", True)
        else:
            reduce = "all_reduce (sglang/srt/distributed/parallel_state.py:500)"
            put(rank, (*FORWARD, reduce), "collective-wait", True)
    sim.run(120)
    assert sim.named() == [2]


def test_a_request_after_a_long_rest_is_seen_to_hang() -> None:
    sim = server()
    for rank in sim.ranks:
        put(rank, RECEIVES, "collective-wait", True)
    sim.run(300)
    assert sim.incidents() == ()
    for rank in sim.ranks:
        put(rank, (*FORWARD, "all_reduce (torch/distributed/distributed_c10d.py:99)"),
            "collective-wait", True)  # fmt: skip
    put(sim.rank(1), FORWARD, "compute", False)
    sim.run(120)
    assert sim.named() == [1]


def serves(sim: Sim, running: int, waiting: int, tokens: int) -> None:
    """What the engine's own metrics say from now on."""
    sim.gauges = {
        'server_requests{job="job",state="running"}': running,
        'server_requests{job="job",state="waiting"}': waiting,
        'server_tokens_total{job="job",kind="generation"}': tokens,
    }


def rests(sim: Sim) -> None:
    """The first rank waits for requests, the others for what it tells them."""
    for rank in sim.ranks:
        put(rank, RECEIVES, "collective-wait", True)
    put(sim.rank(0), RESTS, "network-wait", False)


def test_requests_that_nobody_hands_to_resting_ranks_are_a_stall() -> None:
    sim = server()
    serves(sim, 0, 3, 100)
    rests(sim)
    sim.run(120)
    (incident,) = sim.incidents()
    assert (incident.kind, incident.rule, incident.suspects) == ("stall", "stall.requests", ())
    assert "0 running, 3 waiting requests" in incident.summary
    assert "nobody hands to them" in incident.summary
    (status,) = sim.engine.status(sim.now).jobs
    assert (status.state, status.requests) == ("stalled", "0 running, 3 waiting requests")
    serves(sim, 0, 0, 100)
    sim.run(60)
    assert sim.incidents()[0].state == "resolved"


@pytest.mark.parametrize(("running", "state"), [(0, "healthy"), (1, "slow")])
def test_an_engine_without_requests_is_well_before_any_stack_says_so(
    running: int, state: str
) -> None:
    sim = server()
    serves(sim, running, 0, 100)
    for rank in sim.ranks:
        put(rank, FORWARD, "compute", False)
    (job,) = sim.engine.view.jobs.values()
    sim.run(0.7 * job.timeout())
    (status,) = sim.engine.status(sim.now).jobs
    assert (status.state, sim.incidents()) == (state, ())


def test_no_stall_while_tokens_are_counted_or_nobody_asks() -> None:
    sim = server()
    rests(sim)
    for second in range(0, 300, 5):
        serves(sim, 2, 40, second)
        sim.run(5)
    serves(sim, 0, 0, 1000)
    sim.run(300)
    assert sim.incidents() == ()
    (status,) = sim.engine.status(sim.now).jobs
    assert status.state == "healthy"


def test_a_stuck_rank_is_named_whatever_the_front_end_counts() -> None:
    sim = server()
    serves(sim, 1, 7, 100)
    for rank in sim.ranks:
        put(rank, (*FORWARD, "all_reduce (torch/distributed/distributed_c10d.py:99)"),
            "collective-wait", True)  # fmt: skip
    put(sim.rank(3), FORWARD, "compute", False)
    sim.run(150)
    assert sim.named() == [3]


def test_a_rank_that_was_stopped_while_nobody_asked_and_goes_on() -> None:
    sim = server()
    rests(sim)
    sim.run(60)
    sim.rank(2).state = "T"
    sim.run(60)
    assert sim.named() == [2]
    assert sim.incidents()[0].state != "resolved"
    sim.rank(2).state = "S"
    sim.run(30)
    assert sim.incidents()[0].state == "resolved"
