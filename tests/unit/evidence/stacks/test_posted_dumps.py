"""Dumps as they come out of logs and reports: prefixed, cut off, remarked on, of other libraries.

The excerpts are shortened after public reports; each stands for a way in which dumps differ.
"""

from __future__ import annotations

import json

import pytest

from ray_sentinel.evidence.stacks import classify, classify_process, parse
from ray_sentinel.evidence.stacks.readers.prefixes import without_prefixes
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact, StackTrace
from ray_sentinel.waitgraph.stacks import explain

NOBODY = ProcessId("", 0, 0)


def trace(text: str) -> StackTrace:
    (only,) = parse(text, NOBODY)
    return only


def fact(text: str) -> StackFact:
    return classify_process([trace(text)])


PLAIN = """\
Process 309: sglang::scheduler_TP6
Python v3.12.12 (/usr/bin/python3.12)

Thread 309 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2050)
    verify (eagle_info.py:259)
"""


@pytest.mark.parametrize(
    "prefix",
    ["sglang-1  | ", "[rank6]: ", "[1,6]<stdout>:", "(Worker pid=309, ip=10.0.0.1) ", "> ", "> > ",
     "2025-10-29T11:25:58.123456789Z stdout F ", "6: ", "worker-0 | 2025-10-29T11:25:58.1Z ",
     "Oct 29 11:25:58 node7 train[309]: ", "[default6]:", "node03: ", "10.0.0.3: ",
     "[pod/x/main] ", "2025-10-29T11:25:58.123+00:00 node7 train[309]: ",
     "2025-10-29T11:25:58Z "],
)  # fmt: skip
def test_what_stands_before_each_line_of_a_log_is_taken_off(prefix: str) -> None:
    log = "".join(f"{prefix}{line}\n" for line in PLAIN.splitlines())
    found = trace(log)
    assert found.process.pid == 309
    assert found.command == "sglang::scheduler_TP6"
    assert found.threads == trace(PLAIN).threads


def test_a_dump_deep_in_a_log_is_found() -> None:
    log = "[2025-06-05 08:28:03 TP7] batch_size()=1, reqs=[Req(input_ids=[0, 671])]\n" * 1_000
    assert fact(log + PLAIN).operation == "all_reduce"


def test_a_dump_in_a_container_s_json_is_read() -> None:
    log = "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2025-10-29T11:25:58Z"}) + "\n"
        for line in PLAIN.splitlines()
    )
    assert trace(log).threads == trace(PLAIN).threads


@pytest.mark.parametrize(
    "prefix", ["", "Oct 29 11:25:58 node7 kernel: ", "2025-10-29T11:25:58+00:00 node7 kernel: "]
)
def test_reports_of_a_kernel_s_log_are_read(prefix: str) -> None:
    report = (
        "INFO: task python:4242 blocked for more than 120 seconds.",
        "task:python          state:D stack:0     pid:4242  tgid:4242 ppid:1  flags:0x00000002",
        "Call Trace:",
        " <TASK>",
        " __schedule+0x2d4/0x8a0",
        " nfs_wait_bit_killable+0x1e/0x90 [nfs]",
        " </TASK>",
    )
    log = "".join(f"{prefix}[12345.678901] {line}\n" for line in report)
    (found,) = parse(log, NOBODY)
    assert (found.tool, found.process.pid) == ("kernel", 4242)
    assert [frame.function for frame in found.threads[0].frames] == [
        "__schedule",
        "nfs_wait_bit_killable",
    ]


def test_a_byte_order_mark_hides_nothing() -> None:
    assert trace("\ufeff" + PLAIN).process.pid == 309


def test_a_dump_at_the_end_of_a_large_log_is_found() -> None:
    log = "[rank6]: step 7 loss 2.0 and some more words\n" * 20_000
    dump = "".join(f"[rank6]: {line}\n" for line in PLAIN.splitlines())
    assert fact(log + dump).operation == "all_reduce"


@pytest.mark.parametrize("text", [PLAIN, "3: no stack here\n", "a | b\n> c\n", ""])
def test_lines_without_a_stack_behind_a_prefix_stay(text: str) -> None:
    assert without_prefixes(text) == text


@pytest.mark.parametrize(
    ("header", "active"),
    [('Thread (idle): "MainThread"', False), ('Thread (active) "MainThread"', True),
     ('Thread <pid> (active): "MainThread"', True)],
)  # fmt: skip
def test_a_thread_whose_id_was_blanked_out_is_read(header: str, active: bool) -> None:
    text = f"{header}\n    _try_get_data (torch/utils/data/dataloader.py:1310)\n"
    (thread,) = trace(text).threads
    assert thread.main
    assert thread.tid is None
    assert thread.active is active
    assert fact(text).activity == "input-wait"


def test_a_frame_of_a_function_called_thread_begins_no_thread() -> None:
    text = 'Thread 7 (idle): "MainThread"\n    Thread (pool.py:9)\n    <module> (a.py:1)\n'
    (thread,) = trace(text).threads
    assert [frame.function for frame in thread.frames] == ["Thread", "<module>"]


def test_a_remark_behind_a_frame_is_no_part_of_it() -> None:
    text = 'Thread 7 (idle): "MainThread"\n    close (store.py:658)      <- stuck here\n'
    (thread,) = trace(text).threads
    assert [(frame.function, frame.line) for frame in thread.frames] == [("close", 658)]


def test_gdb_is_read_behind_an_indentation() -> None:
    text = (
        " Thread 11 (Thread 0x7f23 (LWP 2603)):\n"
        " #0 0x00007f232100bb3b in sem_wait@@GLIBC_2.2.5 () from /lib64/libpthread.so.0\n"
        " #1 0x00007f2322f62156 in PyEval_RestoreThread () from /lib64/libpython2.7.so.1.0\n"
        " #2 0x00007f2322f9a2ee in lock_PyThread_acquire_lock () from /lib64/libpython2.7.so.1.0\n"
    )
    assert fact(text).activity == "gil-wait"


def test_frames_shown_one_by_one_are_not_the_backtrace_that_follows() -> None:
    text = (
        "#1  0x00007f916b0090dd in pthread_mutex_lock () from /lib/libc.so.6\n"
        "(gdb) up\n"
        "#2  0x00007f9160c22336 in c10::cuda::CUDACachingAllocator::Native::malloc(int) ()\n"
        "   from /opt/lib/libc10_cuda.so\n"
        "(gdb) bt\n"
        "#0  0x00007f916b004f1b in pthread_cond_timedwait () from /lib/libc.so.6\n"
        "#1  take_gil (tstate=0x7ffc) at /src/Python/ceval_gil.h:247\n"
        "#2  0x00000000005dc982 in PyEval_AcquireThread (tstate=0x26c) at /src/Python/ceval.c:385\n"
    )
    assert fact(text).activity == "gil-wait"


def test_a_backtrace_without_its_beginning_is_read() -> None:
    text = (
        "#13 0x00007fffead8f2dd in mca_pml_ucx_recv (buf=<optimized out>) at pml_ucx.c:510\n"
        "#14 0x00007ffff7b744d4 in PMPI_Recv (buf=<optimized out>) at precv.c:77\n"
        "#15 0x0000000000402677 in main ()\n"
    )
    assert fact(text).operation == "recv"


def test_the_place_of_an_inlined_frame_is_the_file_that_it_stands_in() -> None:
    text = (
        "(cuda-gdb) bt\n"
        "#0  ncclFunction_AllGather_RING_SIMPLE_Sum_int8_t ()\n"
        "    at /nccl/src/prims_simple.h:128 in _ZN10Primitives inlined from prims_simple.h:227\n"
    )
    found = fact(text)
    assert (found.operation, found.waits_for_others) == ("all_gather", True)
    (thread,) = trace(text).threads
    assert (thread.frames[0].file, thread.frames[0].line) == ("/nccl/src/prims_simple.h", 128)


PY_BT = """\
Thread 2 (Thread 0x7f36b64a2700 (LWP 68162) "python3"):
Traceback (most recent call first):
  <built-in method acquire of _thread.lock object at remote 0x7f>
  File "/usr/lib/python3.10/threading.py", line 320, in wait
    waiter.acquire()
  File "/usr/lib/python3.10/threading.py", line 953, in run
    self._target()

Thread 1 (Thread 0x7f384e2dc740 (LWP 68000) "python3"):
Traceback (most recent call first):
  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 2050, in all_reduce
    work.wait()
  File "train.py", line 40, in <module>
    step()
"""


def test_py_bt_in_gdb_writes_the_innermost_call_first() -> None:
    first, main = trace(PY_BT).threads
    assert [frame.function for frame in first.frames] == ["wait", "run"]
    assert (main.tid, main.main) == (68000, True)
    assert fact(PY_BT).operation == "all_reduce"


def test_the_kernel_log_with_the_time_since_the_last_line_is_read() -> None:
    text = (
        "[  +0.000049] task:python3.11      state:D stack:    0 pid:15277 ppid: 15257\n"
        "[  +0.000006] Call Trace:\n"
        "[  +0.000005]  mutex_lock+0x34/0x40\n"
        "[  +0.000005]  uvm_page_tree_get_ptes_async+0x93/0x970 [nvidia_uvm]\n"
        "[  +0.000037]  uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]\n"
    )
    found = fact(text)
    assert (found.activity, found.state) == ("device-wait", "D")


@pytest.mark.parametrize(
    ("frames", "activity", "operation"),
    [
        (["ccl_executor::wait(ccl_request const*) (libccl.so.1)",
          "ccl_allgather(void const*, unsigned long) (libccl.so.1)"],
         "collective-wait", "all_gather"),
        (["opal_progress (libopen-pal.so.40)",
          "ompi_coll_base_allreduce_intra_recursivedoubling (libmpi.so.40)"],
         "collective-wait", "all_reduce"),
        (["cnclAllReduce (libcncl.so.1)"], "collective-wait", "all_reduce"),
        (["HcclBroadcast (libhccl.so)"], "collective-wait", "broadcast"),
        (["synchronize (torch_neuronx/neuron.py:286)"], "device-wait", ""),
        (["absl::lts_2021::Mutex::Await(absl::Condition const&) (xla_extension.so)"],
         "lock-wait", ""),
        (["wait (threading.py:302)", "get (queue.py:170)", "__next__ (fairseq/data/it.py:6)"],
         "input-wait", ""),
        (["connect (ray/_private/worker.py:2722)", "init (ray/_private/worker.py:2026)"],
         "network-wait", ""),
        (["ray::CoreWorkerProcess::RunTaskExecutionLoop (ray/_raylet.so)",
          "main_loop (ray/worker.py:382)"], "idle", ""),
    ],
)  # fmt: skip
def test_frames_of_other_libraries_are_known(
    frames: list[str], activity: str, operation: str
) -> None:
    body = "".join(f"    {frame}\n" for frame in frames)
    found = fact(f'Thread 7 (idle): "MainThread"\n{body}')
    assert (found.activity, found.operation) == (activity, operation)


def test_a_hook_in_the_backward_pass_tells_where_the_rank_is() -> None:
    text = (
        'Thread 4888 (idle): "MainThread"\n'
        "    _engine_run_backward (torch/autograd/graph.py:769)\n"
        "    <module> (tune.py:586)\n"
        'Thread 5406 (idle): "Thread-1"\n'
        "    run (tqdm/_monitor.py:60)\n"
        "    _bootstrap (threading.py:973)\n"
        "Thread 8286 (idle)\n"
        "Thread 8287 (active)\n"
        "    partition_grads (deepspeed/runtime/zero/stage3.py:1500)\n"
        "    wrapped_fn (deepspeed/utils/nvtx.py:18)\n"
    )
    assert fact(text).thread == "8287"


def test_the_end_of_a_pool_waits_for_the_pools_threads() -> None:
    text = (
        'Thread 34 (idle): "MainThread"\n'
        "    _wait_for_tstate_lock (threading.py:1169)\n"
        "    join (threading.py:1149)\n"
        "    shutdown (concurrent/futures/thread.py:239)\n"
        "    close (store.py:658)\n"
        'Thread 35 (active): "io_0"\n'
        "    write_object (native_store.py:404)\n"
    )
    assert fact(text).thread == "io_0"


def test_a_worker_of_another_dataloader_is_no_rank() -> None:
    text = (
        'Thread 7 (idle): "MainThread"\n'
        "    get (multiprocessing/queues.py:113)\n"
        "    _worker_loop (torchdata/stateful_dataloader/worker.py:187)\n"
        "    fit (trainer.py:1291)\n"
    )
    assert fact(text).helper == "dataloader worker"


def test_a_single_thread_of_faulthandler_is_the_main_one() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f4ebf9d3740 (most recent call first):\n"
        '  File "/v/torch/distributed/elastic/utils/store.py", line 67 in barrier\n'
        '  File "/v/torch/distributed/elastic/agent/server/api.py", line 863 in _invoke_run\n'
    )
    assert fact(text).helper == "launcher"


def test_kernels_without_any_host_stack_tell_where_the_process_stands() -> None:
    text = (
        "  Kernel Parent Dev Grid Status SMs Mask GridDim BlockDim Invocation\n"
        "*      0      -   0 220891 Active 0x0ff0ff (2,1,1) (1024,1,1) "
        "deep_ep::internode_ll::combine<false, 7168, 9>()\n"
    )
    found = fact(text)
    assert (found.activity, found.waits_for_others) == ("device-wait", True)


@pytest.mark.parametrize("operation", ["broadcast", "scatter", "gather"])
def test_the_root_of_a_collective_comes_to_it_by_another_way(operation: str) -> None:
    def rank(pid: int, line: int) -> StackFact:
        text = (
            f'Thread {pid} (active): "MainThread"\n'
            f"    {operation} (torch/distributed/distributed_c10d.py:2437)\n"
            f"    exchange (vllm/worker/base.py:{line})\n"
        )
        (only,) = parse(text, ProcessId("node", pid, 0))
        return classify(only)

    answer = explain([[rank(10, 352), *(rank(pid, 370) for pid in range(11, 18))]])
    assert answer.kind == "stall"
    assert answer.culprits == ()


def test_an_id_that_was_cut_short_still_begins_a_thread() -> None:
    text = (
        "Process 11838: python train.py\n"
        'Thread 0x7f... (active): "MainThread"\n'
        "    all_reduce (torch/distributed/distributed_c10d.py:2437)\n"
        "    <module> (train.py:9)\n"
    )
    assert fact(text).activity == "collective-wait"


def test_a_lock_in_mpis_memory_hooks_is_no_wait_for_ranks() -> None:
    text = (
        "#0  0x00007ffff7bc081d in __lll_lock_wait () from /lib64/libpthread.so.0\n"
        "#1  0x00007ffff7bb9ac9 in pthread_mutex_lock () from /lib64/libpthread.so.0\n"
        "#2  0x00007ffff6899e56 in ofi_import_monitor_notify () from /v/libfabric.so.1\n"
        "#3  0x00007ffff6a064ec in opal_mem_hooks_release_hook () from /v/libopen-pal.so.80\n"
    )
    found = fact(text)
    assert (found.activity, found.waits_for_others) == ("lock-wait", False)


def test_a_spin_lock_is_a_lock() -> None:
    text = (
        "#0  0x00007ffff7a149a6 in sys_futex (v3=0, a2=0x0) at ./linux_syscall_support.h:2485\n"
        "#1  base::internal::SpinLockDelay (w=0x7ffff7dcf468) at ./spinlock_linux-inl.h:84\n"
        "#2  0x00007ffff7a14886 in SpinLock::SlowLock (this=0x7ffff7dcf468) at spinlock.cc:119\n"
    )
    assert fact(text).activity == "lock-wait"


@pytest.mark.parametrize(
    ("file", "activity"),
    [
        ("chat/websocket/consumer.py", "unknown"),
        ("/srv/app/redis/cache.py", "unknown"),
        ("redis/connection.py", "network-wait"),
        ("/v/lib/python3.11/site-packages/requests/sessions.py", "network-wait"),
    ],
)
def test_a_users_folder_named_like_a_library_is_not_that_library(file: str, activity: str) -> None:
    text = f'Thread 7 (idle): "MainThread"\n    handle ({file}:140)\n    main (train.py:3)\n'
    assert fact(text).activity == activity
