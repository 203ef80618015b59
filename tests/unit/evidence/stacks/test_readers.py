"""Every tool's output, as real runs left it, becomes the same kind of trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.evidence.stacks import classify_process, parse
from ray_sentinel.evidence.stacks.readers.cuda_gdb import kernel_name, read_kernels
from ray_sentinel.evidence.stacks.readers.gdb import read_frame as gdb_frame
from ray_sentinel.evidence.stacks.readers.pyspy import as_text
from ray_sentinel.evidence.stacks.readers.pyspy import read_frame as pyspy_frame
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace

FIXTURES = Path(__file__).parents[3] / "fixtures" / "stacks"
SINGLE = FIXTURES / "single"


def load(path: Path, pid: int = 0, hint: str = "") -> StackTrace:
    (trace,) = parse(path.read_bytes(), ProcessId("node1", pid), 5.0, hint=hint)
    return trace


def main_functions(trace: StackTrace) -> list[str]:
    (main,) = [thread for thread in trace.threads if thread.main]
    return [frame.function for frame in main.frames]


@pytest.mark.parametrize("path", sorted(SINGLE.glob("pyspy_*")), ids=lambda path: path.stem)
def test_every_real_py_spy_output_is_read(path: Path) -> None:
    trace = load(path)
    if path.stem == "pyspy_gone":
        assert "gone" in trace.error
        assert trace.threads == ()
        return
    assert trace.error == ""
    assert trace.process.pid > 0
    assert main_functions(trace)[0]
    assert any(name == "<module>" for name in main_functions(trace))


def test_plain_text_keeps_threads_states_and_places() -> None:
    trace = load(SINGLE / "pyspy_plain_deadlock.txt")
    assert trace.tool == "py-spy"
    assert trace.command == "/usr/bin/python t.py deadlock"
    main, other = trace.threads
    assert (main.name, main.main, main.active) == ("MainThread", True, False)
    assert (other.name, other.main, other.tid) == ("other", False, 7994)
    assert main.frames[0] == Frame("deadlock", "t.py", 16)
    assert other.frames[1] == Frame("Thread.run", "threading.py", 982)


def test_native_frames_are_told_from_python_ones() -> None:
    trace = load(SINGLE / "pyspy_native_sock.txt")
    assert trace.tool == "py-spy-native"
    native = {frame.function: frame.native for frame in trace.threads[0].frames}
    assert native["recv"]
    assert native["sock_call_ex"]
    assert not native["sock"]
    assert not native["<module>"]


def test_an_older_python_has_no_thread_id_and_so_no_state() -> None:
    (thread,) = load(SINGLE / "pyspy_python310.txt").threads
    assert thread.tid is None
    assert thread.active is None
    assert thread.main


def test_json_tells_an_idle_thread_with_the_gil() -> None:
    trace = load(SINGLE / "pyspy_gil_sleep.json")
    by_name = {thread.name: thread for thread in trace.threads}
    assert by_name["MainThread"].holds_gil is True
    assert by_name["MainThread"].active is False
    assert by_name["ticker"].holds_gil is False
    assert by_name["MainThread"].frames[0] == Frame("gil_sleep", "t.py", 8)


@pytest.mark.parametrize("name", ["gil_sleep", "loader", "spin"])
def test_text_and_json_agree(name: str) -> None:
    text, as_json = load(SINGLE / f"pyspy_plain_{name}.txt"), load(SINGLE / f"pyspy_{name}.json")
    assert [thread.frames for thread in text.threads] == [t.frames for t in as_json.threads]
    assert [thread.tid for thread in text.threads] == [thread.tid for thread in as_json.threads]


def test_gdb_threads_and_frames() -> None:
    trace = load(SINGLE / "gdb_gil_sleep.txt")
    assert (trace.tool, trace.error, trace.process.pid) == ("gdb", "", 7983)
    ticker, main = trace.threads
    assert (ticker.tid, ticker.name, ticker.main) == (7993, "python", False)
    assert (main.tid, main.main, len(main.frames)) == (7983, True, 29)
    assert main.frames[5] == Frame("ffi_call", "/lib/x86_64-linux-gnu/libffi.so.8", 0, native=True)
    assert ticker.frames[6] == Frame("take_gil", "Python/ceval_gil.h", 231, native=True)


def test_cuda_gdb_without_a_gpu() -> None:
    path = FIXTURES / "gloo_plain/gdb/cudagdb_node1_10261.txt"
    trace = load(path)
    assert (trace.tool, trace.error, trace.process.pid) == ("cuda-gdb", "", 10261)
    assert trace.kernels_listed is True
    assert trace.kernels == ()
    names = {thread.name for thread in trace.threads}
    assert {"pt_gloo_runloop", "gloo_tcp_loop", "python"} <= names
    # Complaints that the debugger wrote into the middle of a frame do not cut it.
    (main,) = [thread for thread in trace.threads if thread.main]
    assert any(frame.function == "PyEval_EvalCode" and frame.line == 1148 for frame in main.frames)
    assert not any("Exception" in frame.function for frame in main.frames)


def test_cuda_gdb_whose_unwinder_failed_says_so() -> None:
    trace = load(SINGLE / "cudagdb_unwinder_failed.txt")
    assert trace.kernels_listed is True
    assert "no host stacks" in trace.error or "no stack" in trace.error


def test_cuda_kernels_with_grid_block_device_and_sm() -> None:
    trace = load(FIXTURES / "cuda_kernels.txt")
    assert trace.process.pid == 4711
    reduce, add = trace.kernels
    assert reduce.name == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert (reduce.device, reduce.grid, reduce.block) == (3, "(16,1,1)", "(544,1,1)")
    assert reduce.sm.endswith("ffff")
    assert add.name.startswith("void at::native::vectorized_elementwise_kernel<4,")
    assert "(" not in add.name


def test_kernels_named_in_a_sentence() -> None:
    kernels, listed = read_kernels(
        "info cuda kernels:\n  Kernel 0: flash_fwd_kernel<Traits<64> > on device 2, grid (8,1,1)"
    )
    assert listed
    (kernel,) = kernels
    assert (kernel.name, kernel.device) == ("flash_fwd_kernel<Traits<64> >", 2)
    assert kernel.grid == "(8,1,1)"


@pytest.mark.parametrize(
    ("invocation", "name"),
    [
        ("bitreverse(data=0x7f)", "bitreverse"),
        ("acos_main parms=...", "acos_main"),
        ("n::(anonymous namespace)::k<int (*)(int)>(p=1)",
         "n::(anonymous namespace)::k<int (*)(int)>"),
        ("plain", "plain"),
    ],
)  # fmt: skip
def test_kernel_names(invocation: str, name: str) -> None:
    assert kernel_name(invocation) == name


@pytest.mark.parametrize(
    "function",
    ["irqentry_exit_to_user_mode", "exit_to_user_mode_loop", "syscall_exit_to_user_mode"],
)
def test_a_task_that_lost_its_cpu_while_it_ran_its_program_is_nowhere_in_the_kernel(
    function: str,
) -> None:
    text = (
        f'Thread 4711 (R) "python"\n[<0>] {function}+0x9/0x20\n[<0>] asm_sysvec+0x1a/0x20\n'
        'Thread 4712 (T) "python"\n[<0>] do_signal_stop+0x1/0x20\n'
        f"[<0>] {function}+0x9/0x20\n"
    )
    (trace,) = parse(text, ProcessId("h", 4711))
    frames = [[frame.function for frame in thread.frames] for thread in trace.threads]
    assert frames == [[], ["do_signal_stop", function]]


def test_kernel_stacks_by_task() -> None:
    trace = load(SINGLE / "kernel_deadlock.txt")
    assert (trace.tool, trace.state, trace.error) == ("kernel", "S", "")
    main, other = trace.threads
    assert main.main
    assert not other.main
    assert main.frames[0] == Frame("futex_do_wait", "kernel", 0, native=True)
    assert main.state == "S"


@pytest.mark.parametrize(
    ("text", "pid", "tid", "function", "file", "state"),
    [
        (
            "==> /proc/41/task/42/stack <==\n[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n",
            41, 42, "nfs_wait_bit_killable", "kernel:nfs", "",
        ),
        (
            "[ 121.5] task:python          state:D stack:0     pid:77    ppid:1\n"
            "[ 121.6] Call Trace:\n[ 121.7]  <TASK>\n"
            "[ 121.8]  __schedule+0x2eb/0x8d0\n[ 121.9]  ? io_schedule+0x46/0x70\n",
            0, 77, "__schedule", "kernel", "D",
        ),
        ("[<ffffffff8109e2f2>] pipe_wait+0x62/0x80\n", 0, None, "pipe_wait", "kernel", ""),
    ],
    ids=["head", "hung task", "old kernel"],
)  # fmt: skip
def test_kernel_layouts(
    text: str, pid: int, tid: int | None, function: str, file: str, state: str
) -> None:
    (trace,) = parse(text, ProcessId("h", pid))
    assert trace.tool == "kernel"
    (thread,) = trace.threads
    assert (thread.tid, thread.state) == (tid, state)
    assert thread.frames[0] == Frame(function, file, 0, native=True)


def test_without_root_only_the_state_and_the_wait_channel_are_known() -> None:
    (trace,) = parse(
        'Process 9: python\nState: D\nThread 9 (D) "python" wchan=nfs_wait_bit_killable\n',
        ProcessId("h", 9),
        hint="kernel",
    )
    assert trace.state == "D"
    assert trace.threads[0].frames == (Frame("nfs_wait_bit_killable", "kernel", 0, native=True),)


def test_faulthandler() -> None:
    trace = load(SINGLE / "faulthandler.txt", pid=7)
    assert trace.tool == "faulthandler"
    side, main = trace.threads
    assert main.main
    assert main.frames == (
        Frame("inner", "/home/user/fh.py", 5),
        Frame("<module>", "/home/user/fh.py", 6),
    )
    assert side.frames[0] == Frame("hold", "/home/user/fh.py", 2)


def test_tracebacks_have_the_innermost_call_last_and_may_carry_a_rank() -> None:
    text = (
        "[rank3]: Thread 140 (MainThread):\n"
        '[rank3]:   File "a.py", line 9, in <module>\n'
        "[rank3]:     main()\n"
        '[rank3]:   File "a.py", line 4, in main\n'
    )
    (trace,) = parse(text, ProcessId("h", 0))
    assert trace.threads[0].frames == (Frame("main", "a.py", 4), Frame("<module>", "a.py", 9))


def test_the_layout_with_the_place_first() -> None:
    text = (
        'Thread 0x7f1234567890 (active): "MainThread"\n'
        "    torch/cuda/__init__.py:123 synchronize\n"
        "    engine/managers/scheduler.py:456 forward_batch\n"
        "    ...\n\n"
        'Thread 0x7f1234567891 (idle): "ThreadPoolExecutor-0_0"\n'
        "    concurrent/futures/thread.py:78 _worker\n"
    )
    (trace,) = parse(text, ProcessId("h", 5))
    main, pool = trace.threads
    assert main.frames[0] == Frame("synchronize", "torch/cuda/__init__.py", 123)
    assert len(main.frames) == 2
    assert pool.frames == (Frame("_worker", "concurrent/futures/thread.py", 78),)


def test_local_variables_are_left_out() -> None:
    text = (
        "Process 5: python\nPython v3.11.7 (/usr/bin/python3)\n\n"
        'Thread 5 (idle): "MainThread"\n'
        "    step (train.py:7)\n"
        "        Arguments:\n"
        '            text: "evil (train.py:99)"\n'
        "        Locals:\n"
        "            n: 4\n"
        "    <module> (train.py:20)\n"
    )
    (trace,) = parse(text, ProcessId("h", 0))
    assert [frame.line for frame in trace.threads[0].frames] == [7, 20]


def test_several_processes_in_one_text() -> None:
    text = "".join(
        f'Process {pid}: python\nThread {pid} (idle): "MainThread"\n    f (a.py:{pid})\n'
        for pid in (11, 12)
    )
    first, second = parse(text, ProcessId("h", 0))
    assert (first.process.pid, second.process.pid) == (11, 12)
    assert second.threads[0].frames == (Frame("f", "a.py", 12),)


def test_colours_and_carriage_returns_do_not_matter() -> None:
    text = (
        "Process \x1b[1m\x1b[33m5\x1b[0m: python\r\n"
        'Thread \x1b[33m5\x1b[0m (active): "MainThread"\r\n'
        "    \x1b[32mf\x1b[0m (\x1b[36ma.py\x1b[0m:\x1b[2m7\x1b[0m)\r\n"
    )
    (trace,) = parse(text, ProcessId("h", 0))
    assert trace.threads[0].frames == (Frame("f", "a.py", 7),)


@pytest.mark.parametrize(
    ("rest", "frame"),
    [
        ("read (file.c:3)", Frame("read", "file.c", 3, native=True)),
        (
            "c10d::Work::wait(std::duration<long, std::ratio<1l, 1000l> >) (libtorch_cpu.so)",
            Frame(
                "c10d::Work::wait(std::duration<long, std::ratio<1l, 1000l> >)",
                "libtorch_cpu.so", 0, native=True,
            ),
        ),
        ("<module> (<string>:1)", Frame("<module>", "<string>", 1)),
        ("_find_and_load (<frozen importlib._bootstrap>:1176)",
         Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176)),
        ("0x7f6e844a3f16 (libc.so.6)", Frame("0x7f6e844a3f16", "libc.so.6", 0, native=True)),
        ("main (python3.11)", Frame("main", "python3.11", 0, native=True)),
    ],
)  # fmt: skip
def test_py_spy_frames(rest: str, frame: Frame) -> None:
    assert pyspy_frame(rest) == frame


@pytest.mark.parametrize(
    ("rest", "function", "file", "line"),
    [
        ("__GI___poll (fds=0x7, nfds=1) at ../poll.c:29", "__GI___poll", "../poll.c", 29),
        ("?? () from /lib/libffi.so.8", "??", "/lib/libffi.so.8", 0),
        ("gloo::(anonymous namespace)::ring(int, f<void (int)>) () from /x/libtorch_cpu.so",
         "gloo::(anonymous namespace)::ring(int, f<void (int)>)", "/x/libtorch_cpu.so", 0),
        ("f (s=0x5 \"a) b (c\", n=2) at a b.c:7", "f", "a b.c", 7),
        ("std::function<void ()>::operator()() const () from lib.so",
         "std::function<void ()>::operator()() const", "lib.so", 0),
        ("main ()", "main", "", 0),
    ],
)  # fmt: skip
def test_gdb_frames(rest: str, function: str, file: str, line: int) -> None:
    frame = gdb_frame(rest)
    assert frame is not None
    assert (frame.function, frame.file, frame.line, frame.native) == (function, file, line, True)


def test_gdb_shows_the_frames_of_a_python_with_debug_symbols() -> None:
    frame = gdb_frame(
        "_PyEval_EvalFrameDefault (f=Frame 0x7f1, for file train.py, line 12, in step (x=1), t=0)"
        " at Python/ceval.c:4769"
    )
    assert frame == Frame("step", "train.py", 12)


@pytest.mark.parametrize("pid", [0, 4000])
def test_the_caller_knows_the_process_best(pid: int) -> None:
    text = 'Process 11: python\nThread 11 (idle): "MainThread"\n    f (a.py:1)\n'
    (trace,) = parse(text, ProcessId("h", pid, 99))
    assert trace.process.pid == (pid or 11)


@pytest.mark.parametrize(
    ("text", "hint", "words"),
    [
        ("", "pyspy", "wrote nothing"),
        ("cuda-gdb failed or timed out\n", "cudagdb", "D state"),
        ("bash: py-spy: command not found", "pyspy", "not installed"),
        ("Error: Failed to get stack traces\nReason: x", "pyspy", "--nonblocking"),
        ("Permission Denied: Try running again with elevated permissions", "pyspy", "SYS_PTRACE"),
        ("ptrace: Operation not permitted.", "gdb", "SYS_PTRACE"),
        ("hello world", "", "no output of"),
    ],
)
def test_a_tool_that_failed_is_explained(text: str, hint: str, words: str) -> None:
    (trace,) = parse(text, ProcessId("h", 3), hint=hint)
    assert trace.threads == ()
    assert words in trace.error


def test_what_is_written_is_read_again() -> None:
    trace = load(SINGLE / "pyspy_gil_sleep.json")
    (again,) = parse(as_text(trace), ProcessId("node1", 0))
    assert again.process.pid == trace.process.pid
    assert [t.frames for t in again.threads] == [t.frames for t in trace.threads]
    (main,) = [thread for thread in again.threads if thread.main]
    assert (main.active, main.holds_gil) == (False, True)


def test_cuda_gdb_on_a_real_device_shows_the_kernel_and_the_host_that_waits_for_it() -> None:
    """An H200, driver 580, cuda-gdb 13: a kernel that never ends."""
    trace = load(FIXTURES / "gpu/cudagdb_gpu_3023.txt", 3023)
    assert trace.error == ""
    (kernel,) = trace.kernels
    assert (kernel.name, kernel.device, kernel.grid, kernel.block) == (
        "spin_until_told",
        0,
        "(132,1,1)",
        "(128,1,1)",
    )
    assert "cuCtxSynchronize_v2" in main_functions(trace)
    spy = load(FIXTURES / "gpu/pyspy-native_gpu_3023.txt", 3023)
    fact = classify_process([spy, trace])
    assert (fact.activity, fact.waits_for_others) == ("device-wait", False)
    assert fact.label == "waiting for the kernel spin_until_told"
