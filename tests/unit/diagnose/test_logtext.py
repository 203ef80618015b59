"""Facts in the text of a job's logs."""

from __future__ import annotations

from ray_sentinel.diagnose.logtext import (
    MOST_NODES,
    MainLog,
    exporter_facts,
    init_waves,
    node_list,
    parse_arguments,
    prometheus_facts,
)

LOG = """\
NNODES=4
NODE_LIST=n[001-004]
PASSTHROUGH_ARGS: steps=500 per_device_batch_size=4 remat_policy='full' _env_NCCL_DEBUG=INFO
Config param checkpoint_period: 50
Config param jax_distributed_heartbeat_timeout_seconds: 180
completed step: 1, seconds: 30.10, TFLOP/s/device: 12.0, Tokens/s/device: 900.1, loss: 10.812
completed step: 2, seconds: 5.01, TFLOP/s/device: 400.0, Tokens/s/device: 8000.0, loss: 10.500
2026-01-02 03:04:05.000000: E external/xla/coordination_service.cc:1] The following tasks are \
unhealthy (stopped sending heartbeats):
/job:jax_worker/replica:0/task:2
/job:jax_worker/replica:0/task:3
JOB SUMMARY
""".splitlines()


def test_the_main_logs_facts() -> None:
    log = MainLog("job.log", 2026)
    log.feed(LOG)
    facts = log.as_facts()
    assert facts.checkpoint_period == 50
    assert facts.arguments["remat_policy"] == "full"
    assert facts.arguments["_env_NCCL_DEBUG"] == "INFO"
    assert [(step.step, step.loss) for step in facts.steps] == [(1, 10.812), (2, 10.5)]
    assert facts.failure == "heartbeat-timeout"
    assert facts.accused == ("n003", "n004")
    assert facts.heartbeat_timeout == 180
    assert facts.crash_at == 1767323045.0
    assert facts.summary


def test_what_a_run_was_told_counts_before_its_configuration() -> None:
    log = MainLog("job.log")
    log.feed([*LOG, "PASSTHROUGH_ARGS: checkpoint_period=20"])
    assert log.as_facts().checkpoint_period == 20


def test_a_failed_checkpoint_names_its_step() -> None:
    log = MainLog("job.log")
    log.feed(["FileNotFoundError: /ckpt/2800/items/manifest.ocdbt.__lock: No such file"])
    assert log.as_facts().failed_checkpoint == 2800
    assert log.as_facts().failure == "checkpoint-fs-error"


def test_an_empty_or_binary_log_has_no_facts() -> None:
    log = MainLog("x")
    log.feed(["", "\x00\xff" * 50, "=" * 100_000])
    facts = log.as_facts()
    assert facts.failure == ""
    assert facts.steps == ()


def test_waves_are_told_apart_by_time_or_by_distance() -> None:
    line = "init.cc:2095 NCCL WARN MSCCL++: not enabled"
    timed = [f"2026-01-02 03:{minute:02d}:01 {line}" for minute in (0, 0, 5, 5, 9)]
    assert init_waves(timed) == 3
    assert init_waves([line] * 8 + ["other"] * 100 + [line] * 8) == 2
    assert init_waves(["nothing"] * 10) == 0


def test_node_lists_and_arguments() -> None:
    assert node_list("a,b-[1-2]") == ["a", "b-1", "b-2"]
    assert node_list("x[3-1],y[z]") == ["y", "z"]
    assert node_list(f"x[{'9' * 5000}],x[1-{'9' * 5000}],y[7]") == ["y7"]
    assert len(node_list("n[1-9999]," * 2000)) == MOST_NODES
    assert parse_arguments("") == {}


def test_why_series_are_missing() -> None:
    exporter = exporter_facts("n1.log", "n1", ["plugin gpu timed out"] * 3 + ["exit code 99"])
    assert [fact.text for fact in exporter] == [
        "n1.log: a plugin of the exporter timed out (3 times)",
        "n1.log: a plugin of the exporter gave up for good (exit code 99) (1 times)",
    ]
    assert prometheus_facts("p.log", ['err="context deadline exceeded"'])[0].host == ""
    assert prometheus_facts("p.log", ["all is well"]) == []


def test_a_summary_that_says_failed_and_what_nccl_took() -> None:
    log = MainLog("job.log", 2026)
    log.feed(["NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "=== JOB SUMMARY ===",
              "  Job ID : 12", "  Status : FAILED"])  # fmt: skip
    facts = log.as_facts()
    assert (facts.failed, facts.transport) == (True, "socket")


def test_a_failed_test_case_in_the_training_is_no_failed_job() -> None:
    log = MainLog("job.log", 2026)
    log.feed(["health check status: FAILED, retrying", "NCCL INFO Using network IBext_v8",
              "JOB SUMMARY", "status: COMPLETED"])  # fmt: skip
    facts = log.as_facts()
    assert (facts.failed, facts.transport) == (False, "rdma")
