"""Ranks of inference engines, by the titles of their processes."""

from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.ranks import Discovery
from ray_sentinel.progress.discovery.titles import engine_ranks
from ray_sentinel.progress.proc.processes import ProcessTable
from tests.support.proc_tree import ProcTree


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def ranks(tree: ProcTree) -> list[tuple[str, int, int | None, int]]:
    found = engine_ranks(ProcessTable(tree.root).refresh(0))
    return sorted((item.job, item.rank, item.world_size, item.process.pid) for item in found)


def server(tree: ProcTree, pid: int = 100, *options: str) -> None:
    tree.process(pid, 1, "python3", "-m", "sglang.launch_server", "--model-path", "m", *options)


def test_sglang_schedulers(tree):
    server(tree)
    for rank in range(4):
        tree.process(101 + rank, 100, f"sglang::scheduler_TP{rank}")
    tree.process(110, 100, "sglang::detokenizer")
    assert ranks(tree) == [("sglang-100", rank, 4, 101 + rank) for rank in range(4)]


def test_sglang_over_two_nodes_and_two_stages(tree):
    server(tree, 100, "--tp", "4", "--pp-size=2", "--dist-init-addr", "10.0.0.1:5000")
    # The second node's half of each stage.
    for pid, title in ((101, "PP0_TP2"), (102, "PP0_TP3"), (103, "PP1_TP2"), (104, "PP1_TP3")):
        tree.process(pid, 100, f"sglang::scheduler_{title}")
    assert ranks(tree) == [
        ("sglang-10.0.0.1:5000", 2, 8, 101),
        ("sglang-10.0.0.1:5000", 3, 8, 102),
        ("sglang-10.0.0.1:5000", 6, 8, 103),
        ("sglang-10.0.0.1:5000", 7, 8, 104),
    ]


def test_sglang_with_attention_over_data_parallel_ranks(tree):
    server(tree)
    for rank in range(2):
        tree.process(101 + rank, 100, f"sglang::scheduler_DP{rank}_TP{rank}_EP{rank}")
    assert [(rank, world) for _, rank, world, _ in ranks(tree)] == [(0, 2), (1, 2)]


def test_sglang_with_data_parallel_replicas(tree):
    server(tree)
    for pid, title in ((101, "DP0_TP0"), (102, "DP0_TP1"), (103, "DP1_TP0"), (104, "DP1_TP1")):
        tree.process(pid, 100, f"sglang::scheduler_{title}")
    assert [(rank, pid) for _, rank, _, pid in ranks(tree)] == [
        (0, 101),
        (1, 102),
        (2, 103),
        (3, 104),
    ]


def test_sglang_alone_and_older_titles(tree):
    server(tree)
    tree.process(101, 100, "sglang::scheduler")
    assert ranks(tree) == [("sglang-100", 0, 1, 101)]
    server(tree, 200)
    tree.process(201, 200, "sglang::scheduler_0")
    tree.process(202, 200, "sglang::scheduler_1")
    assert [item for item in ranks(tree) if item[0] == "sglang-200"] == [
        ("sglang-200", 0, 2, 201),
        ("sglang-200", 1, 2, 202),
    ]


def test_sglang_without_titles(tree):
    server(tree)
    assert ranks(tree) == []
    tree.process(101, 100, "python3", "-m", "sglang.launch_server", "--model-path", "m")
    tree.process(102, 100, "python3", "-m", "sglang.launch_server", "--model-path", "m")
    assert [(rank, pid) for _, rank, _, pid in ranks(tree)] == [(0, 101), (1, 102)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("python3", "-m", "sglang_router.launch_router"),
        ("python3", "-m", "sglang.bench_serving"),
        ("python3", "/opt/sglang_router/main.py"),
        ("vim", "sglang.py"),
    ],
)
def test_what_is_no_engine(tree, arguments):
    exe = "/usr/bin/vim" if arguments[0] == "vim" else "/usr/bin/python3.11"
    tree.process(100, 1, *arguments, exe=exe)
    tree.process(101, 100, *arguments, exe=exe)
    assert ranks(tree) == []


def test_vllm(tree):
    tree.process(100, 1, "python", "-m", "vllm.entrypoints.openai.api_server")
    tree.process(101, 100, "VLLM::EngineCore")
    assert ranks(tree) == [("vllm-100", 0, 1, 101)]
    tree.process(102, 101, "VLLM::Worker_TP0")
    tree.process(103, 101, "VLLM::Worker_TP1")
    assert [(rank, world, pid) for _, rank, world, pid in ranks(tree)] == [
        (0, 2, 102),
        (1, 2, 103),
    ]


def test_engines_are_found_as_ranks_of_their_own_kind(tree):
    server(tree)
    tree.process(101, 100, "sglang::scheduler_TP0", environ={"CUDA_VISIBLE_DEVICES": "0,1"})
    (item,) = Discovery().discover(ProcessTable(tree.root).refresh(0))
    assert (item.role, item.source, item.gpus) == ("engine", "title", ("0", "1"))
