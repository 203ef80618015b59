"""Series that tell a cause in their own words: errors of a link, reasons of the driver, functions
of the kernel, room on a file system."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.detect.blocked import awaited_in
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, CELLS, STEP = 1.7e9, 360, 4.0
TIMES = BEGIN + 10.0 * np.arange(CELLS)
HOSTS = ("n0", "n1", "n2", "n3")
GPUS = ("0", "1", "2", "3")
LATE = np.arange(CELLS) >= 180
RNG_SEED = 7

Own = dict[tuple[str, str, str], Floats]
"""(Metric, host, GPU) → values that differ from those of the others."""


def job(slower: float = 1.0, halt: int = CELLS, own: Own | None = None) -> MemorySource:
    """A steady job on 16 GPUs whose steps take ``slower`` times as long in the second half, or end
    at cell ``halt``."""
    own, source = own or {}, MemorySource()
    rng = np.random.default_rng(RNG_SEED)
    seconds = STEP * np.where(LATE, slower, 1.0)
    step = np.floor(np.cumsum(np.where(np.arange(CELLS) < halt, 10.0 / seconds, 0.0)))
    source.add("tb_step", {"host": "n0"}, TIMES, step)
    source.add("tb_perf_step_time_seconds", {"host": "n0"}, TIMES,
               seconds * (1 + rng.normal(0, 0.005, CELLS)))  # fmt: skip
    level = np.where(np.arange(CELLS) < 5, 0.0, 1.0)
    working = level * (np.arange(CELLS) < halt)
    for host in HOSTS:
        source.add("hw_procs_running", {"host": host}, TIMES, 20 + rng.poisson(3, CELLS))
        for gpu in GPUS:
            usual = {
                "hw_gpu_power_watts": 80 + 500 * working + rng.normal(0, 2, CELLS),
                "hw_gpu_utilization_ratio": np.clip(level * 0.97, 0, 1),
                "hw_gpu_clock_mhz": 1700 + rng.normal(0, 5, CELLS),
                "hw_gpu_power_limit_watts": np.full(CELLS, 700.0),
                "hw_gpu_pcie_replay_total": np.cumsum(rng.poisson(0.002, CELLS)),
            }
            for metric, values in usual.items():
                labels = {"host": host, "gpu": gpu}
                if metric == "hw_gpu_clock_mhz":
                    labels["type"] = "sclk"
                source.add(metric, labels, TIMES, own.get((metric, host, gpu), values))
    return source


def found(source: MemorySource) -> Diagnosis:
    return examine(source).diagnosis


def replays() -> Floats:
    return np.cumsum(np.where(LATE, np.random.default_rng(1).poisson(200, CELLS), 0)).astype(float)


def test_a_link_that_replays_while_steps_are_slow_slows_them() -> None:
    answer = found(job(1.5, own={("hw_gpu_pcie_replay_total", "n2", "1"): replays()}))
    assert (answer.outcome, answer.cause) == ("found", "degrading-link")
    assert [(one.host, one.gpu) for one in answer.culprits] == [("n2", "1")]
    assert "made every step 50% slower" in answer.root_cause
    assert answer.chain[-1].role == "symptom"


def test_a_link_that_replays_while_steps_are_as_usual_slows_none() -> None:
    answer = found(job(own={("hw_gpu_pcie_replay_total", "n2", "1"): replays()}))
    assert answer.cause == "degrading-link"
    assert "No effect on the step time is shown" in answer.root_cause


def test_one_replay_long_before_is_not_the_beginning() -> None:
    counted = replays() + (np.arange(CELLS) > 30)
    answer = found(job(1.5, own={("hw_gpu_pcie_replay_total", "n2", "1"): counted}))
    assert answer.onset is not None
    assert abs(answer.onset - TIMES[180]) < 60


def held_down() -> Own:
    own: Own = {}
    for gpu in GPUS:
        own["hw_gpu_clock_mhz", "n1", gpu] = np.where(LATE, 1300.0, 1700.0)
        own["hw_gpu_power_limit_watts", "n1", gpu] = np.where(LATE, 450.0, 700.0)
    return own


def test_why_the_driver_holds_clocks_down_is_told() -> None:
    source = job(1.3, own=held_down())
    for gpu in GPUS:
        for reason in ("sw_power_cap", "hw_thermal_slowdown"):
            flags = LATE if reason == "sw_power_cap" else np.zeros(CELLS)
            labels = {"host": "n1", "gpu": gpu, "reason": reason}
            source.add("hw_gpu_throttle_reason", labels, TIMES, np.asarray(flags, float))
    answer = found(source)
    assert answer.cause == "clock-drop"
    assert {one.host for one in answer.culprits} == {"n1"}
    assert "power limit 450 W, otherwise 700 W, driver's reason sw_power_cap" in answer.root_cause
    assert "thermal_slowdown" not in answer.root_cause
    assert "of GPUs 0-3 of n1" in answer.root_cause
    assert "power limit 450 W" in answer.chain[0].text
    assert len(answer.chain) == 4, "a line for each kind, not for each card"
    assert any(fact.metric == "hw_gpu_throttle_reason" for fact in answer.evidence)


def test_a_reason_that_was_always_given_explains_nothing() -> None:
    source = job(1.3, own=held_down())
    for gpu in GPUS:
        labels = {"host": "n1", "gpu": gpu, "reason": "sw_power_cap"}
        source.add("hw_gpu_throttle_reason", labels, TIMES, np.ones(CELLS))
    assert "sw_power_cap" not in found(source).root_cause


def blocked(source: MemorySource, function: str, *hosts: str) -> MemorySource:
    for host in hosts:
        counts = np.where(np.arange(CELLS) >= 240, 9.0, 0.0)
        labels = {"host": host, "wchan": function}
        source.add("hw_dstate_processes", labels, TIMES, counts)
    return source


def resting(*hosts: str) -> Own:
    working = (np.arange(CELLS) >= 5) & (np.arange(CELLS) < 240)
    return {
        (metric, host, gpu): np.where(working, at_work, at_rest)
        for metric, at_work, at_rest in (
            ("hw_gpu_power_watts", 580.0, 75.0),
            ("hw_gpu_utilization_ratio", 0.97, 0.0),
        )
        for host in hosts
        for gpu in GPUS
    }


def test_processes_that_wait_for_storage_are_no_fault_of_the_driver() -> None:
    source = job(halt=240, own=resting("n3"))
    answer = found(blocked(source, "rpc_wait_bit_killable", "n3"))
    assert answer.cause == "rank-absent"
    assert {one.host for one in answer.culprits} == {"n3"}
    assert "9 processes piled up in D state in rpc_wait_bit_killable" in answer.root_cause
    assert "waiting for storage" in answer.root_cause


def test_a_mount_that_hangs_everywhere_is_no_hosts_fault() -> None:
    source = job(halt=240, own=resting(*HOSTS))
    answer = found(blocked(source, "rpc_wait_bit_killable", *HOSTS))
    assert (answer.outcome, answer.cause, answer.culprits) == ("found", "storage-hang", ())


def test_processes_that_wait_in_the_gpus_driver_are() -> None:
    source = job(halt=240, own=resting("n3"))
    answer = found(blocked(source, "nvidia_ioctl", "n3"))
    assert answer.cause == "driver-fault"
    assert {one.host for one in answer.culprits} == {"n3"}


@pytest.mark.parametrize(
    ("function", "awaited"),
    [
        ("rpc_wait_bit_killable", "storage"),
        ("folio_wait_bit_common", "storage"),
        ("amdgpu_fence_wait_empty", "driver"),
        ("0", "unknown"),
        ("", "unknown"),
    ],
)
def test_what_a_function_of_the_kernel_waits_for(function: str, awaited: str) -> None:
    assert awaited_in(function) == awaited


def rooms(source: MemorySource, free: Floats, *hosts: str) -> MemorySource:
    for host in HOSTS:
        labels = {"host": host, "mount": "/ckpt"}
        source.add("hw_disk_total_bytes", labels, TIMES, np.full(CELLS, 2e12))
        plenty = np.full(CELLS, 1e12)
        source.add("hw_disk_free_bytes", labels, TIMES, free if host in hosts else plenty)
    return source


def test_a_file_system_that_ran_full_before_the_job_stopped_is_told() -> None:
    shrinking = np.maximum(2e12 - 1e10 * np.arange(CELLS), 0.0)
    answer = found(rooms(job(halt=240, own=resting(*HOSTS)), shrinking, "n1"))
    assert (answer.outcome, answer.cause) == ("found", "disk-full")
    assert [one.host for one in answer.culprits] == ["n1"]
    assert "/ckpt" in answer.root_cause


def test_a_shared_file_system_that_ran_full_is_no_hosts_fault() -> None:
    shrinking = np.maximum(2e12 - 1e10 * np.arange(CELLS), 0.0)
    answer = found(rooms(job(halt=240, own=resting(*HOSTS)), shrinking, *HOSTS))
    assert (answer.cause, answer.culprits) == ("disk-full", ())


@pytest.mark.parametrize("free", [np.full(CELLS, 5e9), np.full(CELLS, 1e12)], ids=["always", "no"])
def test_a_file_system_that_was_full_before_or_has_room_is_not(free: Floats) -> None:
    answer = found(rooms(job(), free, *HOSTS))
    assert answer.outcome == "healthy"


@pytest.mark.parametrize("lives", [True, False])
def test_ranks_that_live_while_their_gpus_rest_have_not_ended(lives: bool) -> None:
    source = job(halt=240, own=resting(*HOSTS))
    for rank in range(16):
        alive = np.where(np.arange(CELLS) < 242, 1.0, 1.0 if lives else 0.0)
        labels = {"host": HOSTS[rank // 4], "job": "j", "rank": str(rank)}
        source.add("train_rank_alive", labels, TIMES, alive)
    answer = found(source)
    assert (answer.cause == "waiting-outside") is lives
    assert answer.culprits == ()
    if lives:
        assert answer.outcome == "unknown"
        assert "16 of 16 ranks are alive" in answer.root_cause


def port(source: MemorySource, metric: str, host: str, values: Floats) -> None:
    labels = {"host": host, "device": "mlx5_0", "port": "1"}
    source.add(metric, labels, TIMES, np.asarray(values, float))


def test_ports_that_gave_up_what_they_sent_to_a_dead_one_are_echoes() -> None:
    source = job(halt=240)
    after = np.arange(CELLS) >= 241
    for host in HOSTS:
        port(source, "hw_rdma_port_state", host, np.where(after & (host == "n1"), 0.0, 1.0))
        lost = np.where(after & (host != "n1"), 7.0, 0.0)
        port(source, "hw_rdma_req_tx_retry_excd_err_total", host, lost)
    answer = found(source)
    assert answer.cause == "rdma-link"
    assert [(one.host, one.device) for one in answer.culprits] == [("n1", "mlx5_0")]


@pytest.mark.parametrize("lost_scrapes", [False, True])
def test_notifications_as_many_as_always_are_no_congestion(lost_scrapes: bool) -> None:
    source = job(halt=240, own=resting(*HOSTS))
    rng = np.random.default_rng(5)
    for host in HOSTS:
        rate = np.where(np.arange(CELLS) < 240, 60.0, 0.0)  # six a second while there is traffic
        counted = np.cumsum(rng.poisson(rate)).astype(float)
        if lost_scrapes:
            counted[rng.random(CELLS) < 0.03] = np.nan
        port(source, "hw_rdma_rx_cnp_pkts_total", host, counted)
    assert found(source).cause != "congestion"


@pytest.mark.parametrize("culprit", ["", "n1"])
def test_a_long_noise_of_single_retransmits_is_no_trouble_of_a_link(culprit: str) -> None:
    source = job(halt=240)
    rng = np.random.default_rng(5)
    for host in HOSTS:
        rate = np.abs(rng.normal(0.0, 1.0, CELLS))  # a packet a second, three at times
        rate += np.where((host == culprit) & (np.arange(CELLS) >= 230), 400.0, 0.0)
        port(source, "hw_rdma_tx_retx_pkts_total", host, np.cumsum(10.0 * rate))
    answer = found(source)
    assert (answer.cause == "rdma-link") is bool(culprit)
    assert {one.host for one in answer.culprits} == ({culprit} if culprit else set())


def test_what_ended_the_job_ranks_above_what_slowed_it() -> None:
    source = job(1.5, halt=300, own={("hw_gpu_pcie_replay_total", "n2", "1"): replays()})
    for host in HOSTS:
        down = (np.arange(CELLS) >= 300) & (host == "n1")
        port(source, "hw_rdma_port_state", host, np.where(down, 0.0, 1.0))
    answer = found(source)
    assert answer.cause == "rdma-link"
    assert {one.host for one in answer.culprits} == {"n1"}


def test_cards_that_rest_in_a_part_of_each_step_are_not_out_of_line() -> None:
    rng = np.random.default_rng(11)
    own: Own = {}
    for host, share in zip(HOSTS, (0.54, 0.53, 0.46, 0.55), strict=True):
        at_work = rng.random(CELLS) < share  # when a host is read decides for all of its cards
        for gpu in GPUS:
            own["hw_gpu_power_watts", host, gpu] = np.where(at_work, 600.0, 180.0)
            own["hw_gpu_utilization_ratio", host, gpu] = np.where(at_work, 0.97, 0.3)
    assert found(job(own=own)).outcome == "healthy"


def test_a_job_that_hardly_uses_its_gpus_is_told_so_beside_the_all_clear() -> None:
    rng = np.random.default_rng(2)
    own: Own = {
        ("hw_gpu_utilization_ratio", host, gpu): np.where(rng.random(CELLS) < 0.45, 0.95, 0.25)
        for host in HOSTS
        for gpu in GPUS
    }
    answer = found(job(own=own))
    assert answer.outcome == "healthy"
    assert "Worth a look: GPU utilisation 5" in answer.root_cause, "the mean, not the middle"


def test_a_port_of_a_host_that_was_not_read_may_have_gone_down_first() -> None:
    source = job(halt=240)
    cells = np.arange(CELLS)
    for host in HOSTS:
        state = np.where((cells >= 241) & (host == "n1"), 0.0, 1.0)
        if host == "n1":
            state[236:256] = np.nan
        port(source, "hw_rdma_port_state", host, state)
        lost = np.where((cells >= 242) & (host != "n1"), 7.0, 0.0)
        port(source, "hw_rdma_req_tx_retry_excd_err_total", host, lost)
    answer = found(source)
    assert answer.cause == "rdma-link"
    assert [one.host for one in answer.culprits] == ["n1"]
    assert answer.chain[0].uncertainty >= 190


def test_a_port_that_goes_down_again_and_again_is_told_as_the_root() -> None:
    source = job(halt=240)
    cells = np.arange(CELLS)
    for host in HOSTS:
        down = np.isin(cells, (200, 201, 210, 211)) | (cells >= 240)
        port(source, "hw_rdma_port_state", host, np.where(down & (host == "n1"), 0.0, 1.0))
        lost = np.where(down & (host == "n1"), 900.0, 0.0)
        port(source, "hw_rdma_tx_retx_pkts_total", host, np.cumsum(lost))
    answer = found(source)
    assert [one.host for one in answer.culprits] == ["n1"]
    assert answer.chain[0].text.endswith("went down 3 times, and stayed down")
