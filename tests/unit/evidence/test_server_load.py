"""The metrics of inference engines, as their documents and users show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.server_load import ServerLoad, parse_load, parse_serve

FIXTURES = Path(__file__).parents[2] / "fixtures" / "servers"
SGLANG = """\
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.557572e+06
# HELP sglang:token_usage The token usage
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# HELP sglang:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama"} 0.0
# HELP sglang:num_running_reqs The number of running requests
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
# HELP sglang:gen_throughput The generate throughput (token/s)
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{model_name="meta-llama/Llama-3.1-8B-Instruct"} 86.50814177726902
# HELP sglang:num_queue_reqs The number of requests in the waiting queue
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
"""
VLLM = """\
# HELP process_open_fds Number of open file descriptors.
# TYPE process_open_fds gauge
process_open_fds 45.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 4.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.75
vllm:generation_tokens_total{engine="0",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 10.0
vllm:generation_tokens_total{engine="1",model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 11.0
"""


def test_sglang() -> None:
    assert parse_load(SGLANG) == ServerLoad(
        running=162.0,
        waiting=2826.0,
        tokens={"prompt": 8128902.0, "generation": 7557572.0},
        cache_ratio=0.28,
        tokens_per_second=86.50814177726902,
    )


def test_vllm_s_replicas_are_added_up() -> None:
    assert parse_load(VLLM) == ServerLoad(
        running=7.0, waiting=9.0, tokens={"generation": 21.0}, cache_ratio=0.75
    )


def test_ranks_that_share_their_requests_count_once() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {10 + dp}\n'
        for dp in range(2)
        for tp in range(4)
    )
    assert parse_load(text).running == 21.0


def test_replicas_of_attention_are_numbered_through_and_all_count() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{r}",tp_rank="{r}",moe_ep_rank="{r}"}} {r}\n'
        for r in range(8)
    )
    assert parse_load(text).running == 28.0


def test_queues_of_priorities_are_parts_of_the_whole() -> None:
    text = "".join(
        f'sglang:num_queue_reqs{{tp_rank="0",priority="{priority}"}} {count}\n'
        for priority, count in (("", 7), ("0", 3), ("1", 4))
    )
    assert parse_load(text).waiting == 7.0


def test_what_is_no_number_is_left_out() -> None:
    load = parse_load("vllm:num_requests_running NaN\nvllm:num_requests_waiting 2\n")
    assert (load.running, load.waiting) == (None, 2.0)


@pytest.mark.parametrize("cut", range(0, len(VLLM), 37))
def test_cut_anywhere_it_is_read_or_refused(cut: int) -> None:
    try:
        parse_load(VLLM[:cut])
    except InputError:
        return


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>not found</html>",
        "up 1\n",
        "vllm:num_requests_running{ 1\n",
        "vllm:num_requests_waiting x\n",
    ],
)
def test_what_is_not_an_engine_s_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_load(text)


def test_ray_serve_as_captured_while_one_request_runs() -> None:
    text = (FIXTURES / "ray_serve_2.60.txt").read_text()
    (found,) = parse_serve(text).items()
    name, load = found
    assert name == "serve-default-Model"
    assert (load.running, load.waiting) == (1.0, 0.0)
    assert load.finished is not None
    assert load.finished > 50
    assert load.tokens == {}


def test_a_node_without_ray_serve() -> None:
    assert parse_serve("ray_tasks 3\n") == {}


def test_the_longest_request_of_ray_serve_is_bounded_by_its_histograms() -> None:
    def bucket(replica: str, le: str, count: int, deployment: str = "Model") -> str:
        labels = f'application="app",deployment="{deployment}",replica="{replica}",le="{le}"'
        return f"ray_serve_deployment_processing_latency_ms_bucket{{{labels}}} {count}\n"

    text = (
        bucket("a", "100", 3) + bucket("a", "500", 9) + bucket("a", "1000", 9)
        + bucket("a", "+Inf", 9) + bucket("b", "100", 7) + bucket("b", "+Inf", 7)
        + bucket("c", "100", 1, "Slow") + bucket("c", "+Inf", 2, "Slow")
        + bucket("d", "x", 1, "Odd")
    )  # fmt: skip
    found = {name: load.longest for name, load in parse_serve(text).items()}
    assert found == {"serve-app-Model": 0.5, "serve-app-Slow": None, "serve-app-Odd": None}
