"""Hangs as people report them: threads cut off, lines joined, kernels' logs of other versions.

The excerpts are shortened after public reports; each stands for a way in which dumps differ.
"""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks import classify_process, parse
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact, StackTrace
from ray_sentinel.waitgraph.stacks import explain


def trace(text: str, pid: int = 0) -> StackTrace:
    (only,) = parse(text, ProcessId("node7", pid, 0))
    return only


def fact(text: str, pid: int = 0) -> StackFact:
    return classify_process([trace(text, pid)])


HUNG_TASK = """\
fusermount      D    0 639694   1274 0x00004004
Call Trace:
 ? __schedule+0x2c7/0x740
 schedule+0x4a/0xb0
 fuse_wait_aborted+0x62/0x90 [fuse]
 ? finish_wait+0x80/0x80
 do_syscall_64+0x1a4/0x1c0
"""


@pytest.mark.parametrize(
    "before",
    ["", "Mar 25 16:49:08 node7 kernel: ", "[Mon Mar 28 07:46:40 2022] ", "[96960.240228]  "],
)
def test_older_kernels_name_a_blocked_task_in_a_line_of_their_own(before: str) -> None:
    found = trace("".join(f"{before}{line}\n" for line in HUNG_TASK.splitlines()))
    (thread,) = found.threads
    assert (thread.tid, thread.name, thread.state) == (639694, "fusermount", "D")
    assert classify_process([found]).activity == "storage-wait"


def test_two_blocked_tasks_of_an_older_kernel_are_two() -> None:
    other = (
        "[ 4.1] cp   D ffff881cc6e33680     0 48332  30695 0x00000084\n[ 4.1]  schedule+0x2/0x7\n"
    )
    found = parse(HUNG_TASK + other, ProcessId("node7", 0))
    assert [one.process.pid for one in found] == [639694, 48332]
    assert [one.command for one in found] == ["fusermount", "cp"]
    assert all(thread.main for one in found for thread in one.threads)
    # Where it is known whose capture it is, they are its threads.
    assert [thread.tid for thread in trace(HUNG_TASK + other, 639694).threads] == [639694, 48332]


def report(tid: int, frame: str, *, name: str = "python", more: str = "ppid:41100") -> str:
    """One task as the kernel's hung-task detector prints it since 5.11."""
    return (
        f"[ 7251.1] INFO: task {name}:{tid} blocked for more than 120 seconds.\n"
        '[ 7251.1] "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.\n'
        f"[ 7251.1] task:{name:15} state:D stack:    0 pid:{tid} {more} flags:0x00000004\n"
        f"[ 7251.1] Call Trace:\n[ 7251.1]  <TASK>\n[ 7251.1]  __schedule+0x24e/0x590\n"
        f"[ 7251.1]  {frame}+0x22/0x80\n[ 7251.1]  do_syscall_64+0x59/0xc0\n[ 7251.1]  </TASK>\n"
    )


def innermost(text: str) -> dict[int, list[str]]:
    """The telling frame of each thread, by process."""
    return {
        found.process.pid: [thread.frames[1].function for thread in found.threads]
        for found in parse(text, ProcessId("node7", 0))
    }


def test_ranks_in_one_kernel_log_are_told_apart() -> None:
    log = report(41213, "nfs_wait_on_request") + report(41218, "os_acquire_mutex")
    assert innermost(log) == {41213: ["nfs_wait_on_request"], 41218: ["os_acquire_mutex"]}
    verdict = explain([[classify_process([found]) for found in parse(log, ProcessId("n", 0))]])
    assert [culprit.pid for culprit in verdict.culprits] == [41213]


def test_threads_of_one_process_are_kept_together_where_the_kernel_says_so() -> None:
    log = report(41215, "nfs_wait_on_request", more="tgid:41213 ppid:41100")
    log += report(41213, "futex_wait", more="tgid:41213 ppid:41100")
    assert innermost(log) == {41213: ["nfs_wait_on_request", "futex_wait"]}
    (found,) = parse(log, ProcessId("node7", 0))
    assert [thread.main for thread in found.threads] == [False, True]


def test_of_a_task_that_is_reported_again_the_last_place_counts() -> None:
    log = report(41213, "nfs_wait_on_request") + report(41213, "rpc_wait_bit_killable")
    assert innermost(log) == {41213: ["rpc_wait_bit_killable"]}


def test_the_kernels_own_threads_are_no_ranks() -> None:
    worker = report(812, "wb_wait_for_completion", name="kworker/u8:2", more="ppid:2")
    dump = (
        "[ 7251.2] CPU: 1 PID: 63 Comm: khungtaskd Tainted: P OE 5.15.0\n"
        "[ 7251.2]  dump_stack_lvl+0x4a/0x63\n[ 7251.2]  watchdog+0x3cd/0x530\n"
    )
    assert innermost(worker + report(41213, "nfs_wait_on_request") + dump) == {
        41213: ["nfs_wait_on_request"]
    }


def test_a_cpu_that_does_not_come_back_is_another_task_than_the_one_above() -> None:
    lockup = (
        "[ 7300.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:41218]\n"
        "[ 7300.0] CPU: 3 UID: 0 PID: 41218 Comm: python Kdump: loaded\n[ 7300.0] Call Trace:\n"
        "[ 7300.0]  _raw_spin_lock+0x1e/0x30\n[ 7300.0]  os_spin_unlock+0x1e/0x30 [nvidia]\n"
    )
    assert innermost(report(41213, "nfs_wait_on_request") + lockup) == {
        41213: ["nfs_wait_on_request"],
        41218: ["os_spin_unlock"],
    }


HELPERS = """\
Thread 3 (Thread 0x7f55 (LWP 3514)):
#0  pthread_cond_wait@@GLIBC_2.3.2 () at pthread_cond_wait.S:185
#1  0x00007f2278eac92b in torch::autograd::ReadyQueue::pop() () from /v/libtorch.so.1
#2  0x00007f2278eaba77 in torch::autograd::Engine::thread_init(int) () from /v/libtorch.so.1
#3  0x00007f22bfb9a678 in std::execute_native_thread_routine_compat (__p=<optimized out>)
"""


def test_a_thread_that_another_started_is_not_the_main_one() -> None:
    found = trace(HELPERS)
    assert not any(thread.main for thread in found.threads)
    read = classify_process([found])
    assert (read.activity, read.signature) == ("unknown", ())
    assert "the thread that trains is missing" in read.error


def test_in_a_child_that_a_thread_forked_the_pid_tells_the_main_thread() -> None:
    text = HELPERS.replace("ReadyQueue::pop", "Engine::execute")
    assert [thread.main for thread in trace(text, 3514).threads] == [True]


def test_nobody_is_named_for_helpers_alone() -> None:
    waits = (
        "#0  0x1 in poll () from /lib/libc.so.6\n"
        "#1  0x2 in PMPI_Allreduce () from /lib/libmpi.so\n#2  0x3 in main ()\n"
    )
    texts = [(11, HELPERS), (12, waits), (13, waits), (14, waits)]
    assert explain([[fact(text, pid) for pid, text in texts]]).culprits == ()


def test_a_started_thread_in_a_collective_tells_where_the_rank_is() -> None:
    text = (
        "Thread 9 (Thread 0x7f (LWP 9)):\n"
        "#0  0x1 in sched_yield () from /lib/libc.so.6\n"
        "#1  0x2 in ncclGroupEnd () from /lib/libnccl.so.2\n"
        "#2  0x3 in start_thread () from /lib/libc.so.6\n#3  0x4 in clone () from /lib/libc.so.6\n"
    )
    assert fact(text + HELPERS).waits_for_others is True


def test_a_driver_without_symbols_is_a_wait_for_the_device_at_best() -> None:
    text = (
        "#0  0x000015551cd02434 in ?? () from /lib64/libcuda.so.1\n"
        "#1  0x000015551cb65343 in ?? () from /lib64/libcuda.so.1\n"
        "#2  0x000000000040b1d3 in step () at train.cc:7\n"
    )
    found = fact(text)
    assert (found.activity, found.waits_for_others) == ("device-wait", None)
    below = "#0  0x1 in pthread_rwlock_wrlock () from /lib/libc.so.6\n"
    assert fact(below + text.replace("#1", "#2").replace("#0", "#1")).activity == "lock-wait"


def test_item_waits_for_the_device_in_the_lambda_too() -> None:
    text = (
        "#0  0x1 in ?? () from /lib64/libcuda.so.1\n"
        "#1  0x2 in cudaMemcpyAsync () from /lib/libcudart.so.11.0\n"
        "#2  0x3 in at::native::_local_scalar_dense_cuda(at::Tensor const&)::{lambda()#1}"
        "::operator()() const [clone .isra.100] ()\n   from /v/libtorch_cuda.so\n"
    )
    assert fact(text).label == "waiting for the device"


def test_the_gil_is_told_by_its_condition_alone() -> None:
    text = (
        "#0  0x1 in pthread_cond_timedwait () from /lib/libc.so.6\n"
        "#1  0x000055555566f8cd in PyCOND_TIMEDWAIT (us=<optimized out>, cond=0\n"
    )
    assert fact(text).activity == "gil-wait"


def test_lines_that_lost_their_ends_are_parted() -> None:
    text = (
        "(gdb) bt            #0  0x1 in futex_wait (private=0)            "
        "#1  __pthread_cond_timedwait (cond=0x7f <_PyRuntime+12>)          at cond.c:667        "
        "#2  0x3 in PyCOND_TIMEDWAIT (cond=0x7f, us=5000)\n"
    )
    (thread,) = trace(text).threads
    assert len(thread.frames) == 3
    assert fact(text).activity == "gil-wait"


def test_gdbs_word_on_a_lock_is_a_lock() -> None:
    text = (
        "Traceback (most recent call first):\n"
        "  Waiting for the GIL\n"
        '  File "/v/site-packages/somelib/sampler.py", line 88, in sample\n'
        "    with self._lock:\n"
        '  File "/srv/train.py", line 20, in <module>\n'
    )
    found = fact(text)
    assert (found.activity, found.waits_for_others) == ("lock-wait", None)


IMPORT = """\
Process 7: python train.py
Thread 7 (idle): "MainThread"
    acquire (<frozen importlib._bootstrap>:93)
    _lock_unlock_module (<frozen importlib._bootstrap>:202)
    encode (/srv/text.py:62)
    <module> (/srv/train.py:9)
"""


def test_another_threads_import_is_waited_for() -> None:
    assert fact(IMPORT).label == "waiting for another thread's import"
    importer = (
        'Thread 8 (idle): "loader"\n'
        "    barrier (torch/distributed/distributed_c10d.py:4000)\n"
        "    <module> (/srv/text_model.py:3)\n"
        "    _call_with_frames_removed (<frozen importlib._bootstrap>:241)\n"
        "    _bootstrap (threading.py:1030)\n"
    )
    assert fact(IMPORT + importer).operation == "barrier"


def test_a_tensorflow_step_may_hide_a_collective() -> None:
    native = (
        "#0  syscall () at syscall.S:38\n"
        "#1  0x1 in nsync::nsync_mu_semaphore_p_with_deadline(nsync::s_*, timespec) () from tf.so\n"
        "#2  0x2 in nsync::nsync_cv_wait_with_deadline_generic(nsync::s_*) () from tf.so\n"
    )
    assert (fact(native).activity, fact(native).waits_for_others) == ("lock-wait", None)
    session = native + "#3  0x3 in tensorflow::DirectSession::WaitForNotification(long) ()\n"
    python = (
        'Thread 7 (idle): "MainThread"\n'
        "    quick_execute (tensorflow/python/eager/execute.py:53)\n"
        "    <module> (/srv/train.py:9)\n"
    )
    for text in (session, python):
        found = fact(text)
        assert (found.label, found.waits_for_others) == ("in a TensorFlow step", None)


def test_a_managers_server_is_no_rank() -> None:
    text = (
        'Thread 201 (idle): "MainThread"\n'
        "    wait (threading.py:607)\n"
        "    serve_forever (multiprocessing/managers.py:176)\n"
        "    _run_server (multiprocessing/managers.py:599)\n"
        "    <module> (/srv/train.py:9)\n"
    )
    assert fact(text).helper == "Python's own"


def test_megatrons_checkpoint_is_known_by_a_short_path() -> None:
    text = (
        'Thread 7 (idle): "MainThread"\n'
        "    poll (multiprocessing/popen_fork.py:27)\n"
        "    join (multiprocessing/process.py:149)\n"
        "    close (core/dist_checkpointing/strategies/async_utils.py:248)\n"
        "    <module> (/srv/train.py:9)\n"
    )
    assert fact(text).activity == "checkpoint"


def test_frames_that_were_aligned_by_hand_are_read() -> None:
    text = (
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/v/jax/_src/array.py",    line 642 in _value\n'
        '  File "/v/jax/_src/profiler.py", line 420 in wrapper\n'
    )
    assert fact(text).activity == "device-wait"


@pytest.mark.parametrize(
    ("file", "waits"),
    [("/src/nccl/src/collectives/device/prims_ll.h", True), ("/srv/nccl_bench/add.cu", None)],
)
def test_the_threads_of_a_kernel_without_a_name_tell_whose_it_is(
    file: str, waits: bool | None
) -> None:
    text = (
        "(cuda-gdb) info cuda threads\n"
        "  BlockIdx ThreadIdx To BlockIdx ThreadIdx Count         Virtual PC   Filename  Line\n"
        "Kernel 0\n"
        f"   (0,0,0)   (0,0,0)     (0,0,0)  (31,0,0)    32 0x00007f735e581630 {file}    48\n"
        f"*  (0,0,0)  (32,0,0)     (0,0,0)  (63,0,0)    32 0x00007f735e581640 {file}    48\n"
    )
    found = fact(text)
    assert (len(found.kernels), found.waits_for_others) == (1 if waits else 0, waits)


def test_freeing_device_memory_may_wait_for_a_collectives_kernel() -> None:
    text = (
        "#0  0x1 in ?? () from /lib64/libcuda.so.1\n#1  0x2 in cudaFree () from libcudart.so.12\n"
        "#2  0x3 in main () at train.cc:7\n"
    )
    assert (fact(text).activity, fact(text).waits_for_others) == ("allocation", None)
    assert fact(text.replace("Free", "Malloc")).waits_for_others is False


def test_the_frame_that_gdb_shows_when_it_attaches_is_not_the_backtrace() -> None:
    text = (
        "#0  0x00007ffff7d23117 in ?? () from /lib/libc.so.6\n"
        "(gdb) where\n"
        "#0  0x00007ffff7d23117 in ?? () from /lib/libc.so.6\n"
        "#1  0x00007fff90dc9f67 in commFree (comm=0x718d9f0) at init.cc:182\n"
        "#2  0x00007fff90dcf09a in ncclCommAbort (comm=0x718d9f0) at init.cc:2027\n"
    )
    assert fact(text).label == "closing the process group"


def test_frames_before_the_first_blocked_task_are_another_ones() -> None:
    text = "[ 1.0]  SyS_ioctl+0x79/0x90\n" + HUNG_TASK
    assert [thread.tid for thread in trace(text).threads] == [639694]
    assert fact(text).activity == "storage-wait"
