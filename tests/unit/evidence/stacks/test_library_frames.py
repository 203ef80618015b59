"""Frames that libraries are known by: engines, DeepSpeed, other accelerators, file names."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import explain
from tests.support.stack_facts import elsewhere, fact, looks, ranks
from tests.support.stack_lines import main_fact

ZERO3 = "deepspeed/runtime/zero/partition_parameters.py"


@pytest.mark.parametrize(
    ("lines", "activity", "waits", "operation"),
    [
        # py-spy cuts the path off at the first folder that is no package.
        (("all_reduce distributed/parallel_state.py:501",), "collective-wait", True, "all_reduce"),
        (("recv_object distributed/parallel_state.py:1192",), "collective-wait", True, "recv"),
        (("tensor_model_parallel_all_gather distributed/communication_op.py:20",),
         "collective-wait", True, "all_gather"),
        (("point_to_point_pyobj utils/common.py:1364",), "collective-wait", True, "recv"),
        (("point_to_point_pyobj mine/tools.py:13",), "unknown", None, ""),
        (("all_reduce mine/distributed/parallel_state.py:5",), "unknown", None, ""),
        ((f"wait {ZERO3}:50",), "collective-wait", True, "all_gather"),
        ((f"all_gather_coalesced {ZERO3}:1254",), "collective-wait", True, "all_gather"),
        ((f"_convert_to_deepspeed_param {ZERO3}:1010",), "unknown", None, ""),
        (("dispatch deep_ep/buffer.py:320",), "collective-wait", True, "all_to_all"),
        # Other accelerators.
        (("sched_yield", "ur::level_zero::urEventWait", "build x.py:3"), "device-wait", None, ""),
        (("read", "c10_npu::NPUStream::stream", "step x.py:3"), "device-wait", None, ""),
        # Files.
        (("stat pathlib.py:840", "find x.py:3"), "storage-wait", False, ""),
        (("stat pathlib/_local.py:515", "find x.py:3"), "storage-wait", False, ""),
        (("exists <frozen genericpath>:19", "find x.py:3"), "storage-wait", False, ""),
        (("exists mine/os.py:19", "find x.py:3"), "unknown", None, ""),
        (("__init__ megatron/core/datasets/indexed_dataset.py:50",), "input-wait", False, ""),
        (("acquire datasets/utils/_filelock.py:60",), "lock-wait", False, ""),
        # CPython's own.
        (("acquire logging/__init__.py:927", "handle logging/__init__.py:966"),
         "lock-wait", False, ""),
        (("cmdloop cmd.py:126", "interaction pdb.py:436", "loss x.py:3"), "input-wait", False, ""),
        (("read", "builtin_input_impl", "ask x.py:3"), "input-wait", False, ""),
        (("pause", "signal_pause", "hold x.py:3"), "sleep", False, ""),
        # An event loop of which no frame is seen, with nothing to do, and with a coroutine in it.
        (("run asyncio/runners.py:118", "run asyncio/runners.py:190", "x x.py:3"),
         "idle", None, ""),
        (("pause", "signal_pause", "hold x.py:3", "run asyncio/runners.py:118"),
         "sleep", False, ""),
        # A wait for the device inside a collective, but not inside the user's code there.
        (("cuStreamSynchronize", "barrier torch/distributed/distributed_c10d.py:4159"),
         "collective-wait", True, "barrier"),
        (("cuStreamSynchronize", "c10d::ProcessGroupNCCL::WorkNCCL::wait", "x x.py:3",
          "all_gather torch/distributed/distributed_c10d.py:3390"),
         "collective-wait", True, "all_gather"),
        (("cuStreamSynchronize", "hook x.py:3", "barrier torch/distributed/distributed_c10d.py:9"),
         "device-wait", None, ""),
    ],
)  # fmt: skip
def test_known_frames(
    lines: tuple[str, ...], activity: str, waits: bool | None, operation: str
) -> None:
    found = main_fact(*lines)
    assert (found.activity, found.waits_for_others) == (activity, waits)
    assert found.operation == operation


def test_what_a_connections_wait_is_for_the_frame_outside_says() -> None:
    wait = ("select selectors.py:415", "wait multiprocessing/connection.py:947")
    child = main_fact(*wait, "wait multiprocessing/popen_forkserver.py:65")
    queue = main_fact(*wait, "_poll multiprocessing/connection.py:440")
    assert (child.label, queue.label) == ("waiting for a child process", "waiting for a queue")


QUEUE = ("wait threading.py:355", "get queue.py:171")
CORE = "_process_input_queue vllm/v1/engine/core.py:1180"


def test_an_engine_without_requests_is_idle() -> None:
    assert main_fact(*QUEUE, CORE).activity == "idle"
    # It handles one there.
    assert main_fact("build vllm/v1/structured_output/x.py:3", CORE).activity == "unknown"
    assert main_fact("dequeue vllm/distributed/m.py:3", CORE).activity == "collective-wait"


def test_an_idle_engine_does_not_hold_up_its_workers() -> None:
    engine = main_fact(*QUEUE, CORE)
    workers = [fact(rank, rank=None, operation="", label="in a collective") for rank in range(2)]
    assert looks(*workers, engine).culprits == ()


PLAIN_BT = """\
#0  ncclLaunchKernel (comm=0x7f, plan=0x7e) at enqueue.cc:1401
#1  groupLaunch (job_=0x7d) at group.cc:311
#2  main () at a.c:1
"""


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "2025-10-29T11:25:58.1Z stdout F ", "> "])
def test_a_backtrace_without_a_thread_and_addresses(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in PLAIN_BT.splitlines())
    (trace,) = parse(text, ProcessId("node1", 7))
    assert trace.tool == "gdb"
    assert classify(trace).activity == "collective-wait"


SPIED = 'Process 7: python train.py\n\nThread 7 (idle): "MainThread"\n    f (train.py:3)\n'
KERNEL = "[<0>] futex_wait+0x105/0x240\n[<0>] do_futex+0x143/0x500\n"
BACKTRACE = 'Thread 1 (Thread 0x7f4c (LWP {}) "python"):\n#0  0x00007f0b in read () from libc.so\n'


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        (SPIED + KERNEL, ["py-spy", "kernel"]),
        (SPIED + f"$ cat /proc/7/stack\n{KERNEL}", ["py-spy", "kernel"]),
        (SPIED + f"(gdb) thread apply all bt\n{BACKTRACE.format(7)}", ["py-spy", "gdb"]),
        # Another process's, or nobody knows whose.
        (SPIED + f"(gdb) thread apply all bt\n{BACKTRACE.format(8)}", ["py-spy"]),
        (SPIED + SPIED.replace("7", "8") + KERNEL, ["py-spy", "py-spy"]),
    ],
)
def test_two_tools_in_one_text(text: str, tools: list[str]) -> None:
    found = parse(text, ProcessId("node1", 0))
    assert [trace.tool for trace in found] == tools
    assert found[0].process == ProcessId("node1", 7)
    assert [frame.function for frame in found[0].threads[0].frames] == ["f"]


TABLE = """\
(cuda-gdb) info cuda kernels
  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation
*      0      -   0  5216 Active 0x00000001 (1,1,1) (64,1,1) {}()
"""


def on_device(rank: int, kernel: str) -> StackFact:
    """A rank of which cuda-gdb showed the kernels, and no stack."""
    (trace,) = parse(TABLE.format(kernel), ProcessId("n", 100 + rank))
    return msgspec.structs.replace(classify(trace), rank=RankId("j", 0, rank))


def test_kernels_tell_where_no_stack_could_be_read() -> None:
    waiting = [on_device(rank, "ncclDevKernel_AllReduce_Sum") for rank in range(3)]
    assert explain([waiting]).kind == "stall"
    found = explain([[*waiting, on_device(3, "ampere_sgemm_128x64_tn")]])
    assert (ranks(found), found.kind) == ([3], "device-stuck")


def test_a_rank_of_which_only_a_collectives_kernel_was_seen_is_no_odd_one() -> None:
    found = looks(*(fact(rank) for rank in range(3)), on_device(3, "ncclDevKernel_AllReduce_Sum"))
    assert (found.culprits, found.kind) == ((), "stall")
    found = looks(*(fact(rank) for rank in range(3)), on_device(3, "ncclDevKernel_Generic"))
    assert (found.culprits, found.kind) == ((), "stall")


def test_of_a_rank_without_a_stack_the_kernel_is_a_weaker_sign() -> None:
    sleeps = looks(*(fact(rank) for rank in range(3)), elsewhere(3))
    computes = looks(*(fact(rank) for rank in range(3)), on_device(3, "ampere_sgemm"))
    assert ranks(computes) == [3]
    assert computes.confidence < sleeps.confidence
