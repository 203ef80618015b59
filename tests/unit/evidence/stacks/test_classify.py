"""What one process's stacks say: activity, operation, whether it waits for others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ray_sentinel.evidence.stacks import StackReader, classify, classify_process, parse
from ray_sentinel.evidence.stacks.frames import reading as stack_reading
from ray_sentinel.evidence.stacks.frames.names import plain
from ray_sentinel.evidence.stacks.frames.reading import operation_name
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackFact, StackTrace, ThreadStack
from ray_sentinel.waitgraph.stack_facts import kind_of
from tests.support.stack_lines import PROCESS, main_fact, thread

FIXTURES = Path(__file__).parents[3] / "fixtures" / "stacks"


def fact_of(name: str) -> StackFact:
    (trace,) = parse((FIXTURES / name).read_bytes(), ProcessId("node1", 0))
    return classify(trace)


@pytest.mark.parametrize(
    ("name", "activity", "waits", "label"),
    [
        ("single/pyspy_native_nap_forever.txt", "sleep", False, "sleeping"),
        ("single/pyspy_native_deadlock.txt", "lock-wait", False, "a lock"),
        ("single/pyspy_native_sock.txt", "network-wait", False, "network"),
        ("single/pyspy_native_take_input.txt", "input-wait", False, "FIFO"),
        ("single/pyspy_native_subproc.txt", "unknown", False, "child process"),
        ("single/pyspy_plain_subproc.txt", "unknown", False, "child process"),
        ("single/pyspy_plain_queue_.txt", "lock-wait", False, "signal"),
        ("single/pyspy_native_loader.txt", "input-wait", False, "next batch"),
        ("single/pyspy_plain_loader.txt", "input-wait", False, "next batch"),
        ("single/pyspy_plain_nap_forever.txt", "unknown", None, "nap_forever"),
        ("single/kernel_take_input.txt", "input-wait", False, "FIFO"),
        ("single/kernel_sock.txt", "network-wait", False, "network"),
        ("single/kernel_nap_forever.txt", "sleep", False, "sleeping"),
        ("single/kernel_deadlock.txt", "lock-wait", None, "lock"),
        ("gloo_ddp/plain/pyspy_node1_10329.txt", "compute", None, "backward"),
        ("gloo_ddp/native/pyspy_node1_10329.txt", "collective-wait", True, "all_reduce"),
        ("gloo_ddp/gdb/gdb_node1_10329.txt", "collective-wait", True, "all_reduce"),
        ("gloo_ddp/gdb/cudagdb_node1_10329.txt", "collective-wait", True, "all_reduce"),
        ("gloo_plain/plain/pyspy_node1_10261.txt", "collective-wait", True, "all_reduce"),
        ("gloo_plain/gdb/gdb_node1_10261.txt", "collective-wait", True, "collective"),
        ("gloo_mismatch/plain/pyspy_node1_10574.txt", "collective-wait", True, "barrier"),
        ("gloo_async/native/pyspy_node1_10396.txt", "collective-wait", True, "a collective"),
        ("cuda_kernels.txt", "device-wait", True, "all_reduce"),
        ("nccl_gdb.txt", "collective-wait", True, "communicator"),
    ],
)
def test_real_outputs(name: str, activity: str, waits: bool | None, label: str) -> None:
    found = fact_of(name)
    assert (found.activity, found.waits_for_others) == (activity, waits)
    assert label in found.label


@pytest.mark.parametrize(
    ("lines", "activity", "waits", "operation"),
    [
        (["all_gather_into_tensor torch/distributed/distributed_c10d.py:3000", "f a.py:1"],
         "collective-wait", True, "all_gather"),
        (["_coalescing_manager torch/distributed/distributed_c10d.py:3000", "f a.py:1"],
         "unknown", None, ""),
        (["batch_isend_irecv torch/distributed/distributed_c10d.py:9", "f a.py:1"],
         "collective-wait", True, "send"),
        (["irecv torch/distributed/distributed_c10d.py:9"], "collective-wait", True, "recv"),
        (["init_process_group torch/distributed/distributed_c10d.py:9", "f a.py:1"],
         "startup", True, ""),
        (["synchronize torch/cuda/__init__.py:9", "f a.py:1"], "device-wait", None, ""),
        (["synchronize torch/cuda/streams.py:9", "f a.py:1"], "device-wait", None, ""),
        (["_save torch/serialization.py:9", "save torch/serialization.py:8", "f a.py:1"],
         "checkpoint", False, ""),
        (["save_file safetensors/torch.py:9", "f a.py:1"], "checkpoint", False, ""),
        (["save torch/distributed/checkpoint/state_dict_saver.py:9"], "checkpoint", False, ""),
        (["wait orbax/checkpoint/checkpointer.py:9"], "checkpoint", False, ""),
        (["codegen torch/_inductor/codegen/triton.py:9", "f a.py:1"], "compile", False, ""),
        (["compile triton/compiler/compiler.py:9", "f a.py:1"], "compile", False, ""),
        (["backend_compile jax/_src/compiler.py:9", "f a.py:1"], "compile", False, ""),
        (["_do_copy s3fs/core.py:9", "f a.py:1"], "storage-wait", False, ""),
        (["readinto socket.py:9", "get requests/api.py:8"], "network-wait", False, ""),
        (["select selectors.py:9", "serve_forever socketserver.py:8"], "idle", None, ""),
        (["block_until_ready jax/_src/array.py:9", "f a.py:1"], "device-wait", None, ""),
        (["jax::BlockUntilReadyWithCancel", "jax::AwaitBuffersReady", "main train.py:1"],
         "device-wait", None, ""),
        (["sync_global_devices jax/experimental/multihost_utils.py:1"],
         "collective-wait", True, ""),
        (["acquire filelock/_api.py:9", "f a.py:1"], "lock-wait", False, ""),
        (["get_code <frozen:9", "_find_and_load <frozen"], "unknown", None, ""),
        (["ncclAllReduce", "f a.py:1"], "collective-wait", True, "all_reduce"),
        (["rcclAllGather", "f a.py:1"], "collective-wait", True, "all_gather"),
        (["PMPI_Allreduce", "main"], "collective-wait", True, "all_reduce"),
        (["opal_progress", "ompi_request_wait", "MPI_Recv", "main"],
         "collective-wait", True, "recv"),
        (["ucp_worker_progress", "main"], "collective-wait", True, ""),
        (["__GI___poll", "ncclGroupEnd", "f a.py:1"], "collective-wait", True, ""),
        (["hipStreamSynchronize", "f a.py:1"], "device-wait", None, ""),
        (["cuMemcpyDtoH_v2", "f a.py:1"], "device-wait", None, ""),
        (["cudaMalloc", "f a.py:1"], "allocation", False, ""),
        (["__futex_abstimed_wait_common64", "take_gil", "PyEval_RestoreThread", "f a.py:1"],
         "gil-wait", None, ""),
        (["futex_wait", "PyGILState_Ensure", "callback", "ncclGroupEnd"], "gil-wait", None, ""),
        (["__GI_fsync", "os_fsync", "f a.py:1"], "storage-wait", False, ""),
        (["nvrtcCompileProgram", "f a.py:1"], "compile", False, ""),
        (["something_new", "f a.py:1"], "unknown", None, ""),
    ],
)  # fmt: skip
def test_known_frames(lines: list[str], activity: str, waits: bool | None, operation: str) -> None:
    found = main_fact(*lines, "<module> train.py:99")
    assert (found.activity, found.waits_for_others, found.operation) == (
        activity, waits, operation,
    )  # fmt: skip


def test_a_users_function_is_not_known_by_its_name_alone() -> None:
    for name in ("all_reduce", "barrier", "synchronize", "save", "sleep_all", "wait"):
        found = main_fact(f"{name} train.py:3", "<module> train.py:9")
        assert (found.activity, found.waits_for_others) == ("unknown", None)


def test_the_users_code_inside_a_collective_is_not_a_wait_for_others() -> None:
    """An object that hangs while it is pickled for a broadcast hangs by itself."""
    found = main_fact(
        "__getstate__ /home/me/data.py:4",
        "broadcast_object_list torch/distributed/distributed_c10d.py:3000",
        "<module> /home/me/train.py:9",
    )
    assert found.waits_for_others is None
    assert found.signature[-1] == "__getstate__ (/home/me/data.py:4)"


def test_the_innermost_frame_of_the_users_code_is_known() -> None:
    found = main_fact(
        "wait threading.py:327",
        "get queue.py:171",
        "stream /home/me/data.py:12",
        "<module> /home/me/train.py:9",
    )
    assert found.signature[-1] == "wait (threading.py:327)"
    assert found.users_place == "stream (/home/me/data.py:12)"
    assert main_fact("wait threading.py:327", "get queue.py:171").users_place == ""


@pytest.mark.parametrize(
    ("outermost", "is_users"),
    [
        ("<module> /home/me/rl.py:31", True),
        ("<module> rl.py:31", True),
        ("<module> <string>:1", False),
        ("<module> /opt/venv/bin/ipython:8", False),
        ("<module> /usr/lib/python3/dist-packages/colab_kernel_launcher.py:37", False),
        ("<module> runpy.py:1", False),
    ],
)
def test_the_body_of_a_script_is_the_users_code(outermost: str, is_users: bool) -> None:
    """A driver whose coroutines all await something shows only where they were started."""
    found = main_fact(
        "select selectors.py:468",
        "run_forever asyncio/base_events.py:607",
        "run asyncio/runners.py:118",
        outermost,
    )
    assert found.activity == "idle"
    assert found.users_code is is_users
    assert bool(found.users_place) is is_users


def test_a_module_that_a_wait_imports_is_no_code_that_the_wait_runs() -> None:
    found = main_fact(
        "<module> /home/me/reward.py:3",
        "get_objects ray/_private/worker.py:976",
        "get ray/_private/worker.py:2882",
        "<module> /home/me/rl.py:31",
    )
    assert found.label == "waiting for Ray"


def test_the_users_code_that_a_server_runs_does_not_wait_for_the_network() -> None:
    frames = (
        "finish_request socketserver.py:361",
        "process_request_thread socketserver.py:691",
        "<module> /home/me/serve.py:9",
    )
    handles = main_fact("score /home/me/serve.py:4", "do_POST /home/me/serve.py:8", *frames)
    assert handles.activity == "unknown"
    assert handles.signature[-1] == "score (/home/me/serve.py:4)"
    asks = main_fact("readinto socket.py:9", "score /home/me/serve.py:4", *frames)
    assert (asks.activity, asks.signature[-1]) == ("network-wait", "readinto (socket.py:9)")


def test_a_collective_inside_a_checkpoint_is_a_wait_for_others() -> None:
    found = main_fact(
        "all_reduce torch/distributed/distributed_c10d.py:3",
        "reduce_scatter torch/distributed/checkpoint/utils.py:200",
        "save torch/distributed/checkpoint/state_dict_saver.py:100",
        "<module> train.py:9",
    )
    assert (found.activity, found.waits_for_others) == ("collective-wait", True)


def test_the_users_dataset_hanging_in_the_main_process_is_input() -> None:
    found = main_fact(
        "__getitem__ data.py:4",
        "fetch torch/utils/data/_utils/fetch.py:52",
        "_next_data torch/utils/data/dataloader.py:700",
        "<module> train.py:9",
    )
    assert found.activity == "input-wait"


def test_running_a_compiled_graph_is_not_compiling() -> None:
    found = main_fact(
        "call /tmp/torchinductor_me/ab/cab.py:77",
        "__call__ torch/_inductor/output_code.py:465",
        "_fn torch/_dynamo/eval_frame.py:745",
        "<module> train.py:9",
    )
    assert found.activity == "unknown"


def test_the_signature_is_the_same_while_a_wait_flickers() -> None:
    waits = [
        main_fact(*leaf, "c10d::Work::wait", "all_reduce torch/distributed/distributed_c10d.py:3",
                  "<module> a.py:1").signature
        for leaf in (["sched_yield"], ["0x7f00", "pthread_cond_wait"], ["nanosleep", "usleep"], [])
    ]  # fmt: skip
    assert len(set(waits)) == 1
    assert waits[0][0] == "<module> (a.py:1)"


def test_addresses_and_interpreter_frames_are_not_in_the_signature() -> None:
    found = fact_of("single/gdb_gil_sleep.txt")
    assert not any(place.startswith(("0x", "??", "_PyEval", "PyEval_Eval", "run_mod"))
                   for place in found.signature)  # fmt: skip


def test_the_gil_held_in_c_by_a_sleeper() -> None:
    for name in ("pyspy_gil_sleep.json", "gdb_gil_sleep.txt", "pyspy_native_gil_sleep.txt"):
        assert fact_of(f"single/{name}").keeps_gil, name
    assert fact_of("single/pyspy_native_gil_sleep.txt").gil_waiters == 1


@pytest.mark.parametrize(
    "name",
    ["pyspy_spin.json", "pyspy_native_nap_forever.txt", "pyspy_loader.json",
     "pyspy_native_queue_.txt", "pyspy_native_sock.txt", "pyspy_native_deadlock.txt"],
)  # fmt: skip
def test_the_gil_not_kept(name: str) -> None:
    assert not fact_of(f"single/{name}").keeps_gil


@pytest.mark.parametrize(
    ("name", "runs"),
    [("gdb_python_loop.txt", True), ("gdb_gil_any.txt", False), ("gdb_gil_pow.txt", False),
     ("gdb_gil_sleep.txt", False), ("pyspy_native_gil_spin.txt", False),
     # The same stack as that of ``any(repeat(0))``, which keeps the GIL.
     ("pyspy_native_ray_loop.txt", False)],
)  # fmt: skip
def test_a_debugger_tells_python_from_c(name: str, runs: bool) -> None:
    assert fact_of(f"single/{name}").runs_python is runs


def test_a_task_that_ray_runs_is_no_wait_for_ray() -> None:
    found = fact_of("single/pyspy_native_ray_loop.txt")
    assert found.signature[-1] == "kesnorul (kesjocor.py:168)"
    assert found.activity == "unknown"


def test_tools_together_say_more_than_each() -> None:
    base = FIXTURES / "gloo_ddp"
    (spy,) = parse((base / "plain/pyspy_node1_10329.txt").read_bytes(), PROCESS)
    (gdb,) = parse((base / "gdb/gdb_node1_10329.txt").read_bytes(), PROCESS)
    (cuda,) = parse((base / "gdb/cudagdb_node1_10329.txt").read_bytes(), PROCESS)
    both = classify_process([gdb, spy, cuda])
    assert (both.tool, both.activity, both.waits_for_others) == ("py-spy", "collective-wait", True)
    assert both.signature == classify(spy).signature
    assert both.kernels_listed is True


def test_the_kernel_knows_what_plain_python_stacks_cannot() -> None:
    (spy,) = parse((FIXTURES / "single/pyspy_plain_take_input.txt").read_bytes(), PROCESS)
    (kernel,) = parse((FIXTURES / "single/kernel_take_input.txt").read_bytes(), PROCESS)
    found = classify_process([spy, kernel])
    assert found.activity == "input-wait"
    assert found.signature[-1].startswith("take_input (")


def test_the_kernels_word_on_the_main_thread_is_not_one_on_the_thread_that_trains() -> None:
    spy = StackTrace(process=PROCESS, tool="py-spy", at=1.0, threads=(
        thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True, tid=7),
        thread("loop train.py:24", "run threading.py:982", name="TrainingThread(f)", tid=9),
    ))  # fmt: skip
    polls = thread("do_epoll_wait", main=True, tid=7)
    sleeps = thread("hrtimer_nanosleep", tid=9)
    kernel = StackTrace(process=PROCESS, tool="kernel", at=1.0, threads=(polls, sleeps))
    found = classify_process([spy, kernel])
    assert (found.activity, found.signature[-1]) == ("sleep", "loop (train.py:24)")
    half = StackTrace(process=PROCESS, tool="kernel", at=1.0, threads=(polls,))
    assert classify_process([spy, half]).label == classify(spy).label


def test_the_kernels_word_is_on_the_thread_that_tells() -> None:
    """One that waits for a lock of ``with``, while the main thread serves Ray, polls nothing."""
    method = thread("write store.py:40", "actor_method_executor ray/_private/function_manager.py:7",
                    name="Dummy-1", tid=9)  # fmt: skip
    main = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True, tid=7)
    spy = StackTrace(process=PROCESS, tool="py-spy", at=1.0, threads=(main, method))
    polls = thread("do_epoll_wait kernel", main=True, tid=7)
    waits = thread("futex_wait_queue kernel", tid=9)
    kernel = StackTrace(process=PROCESS, tool="kernel", at=1.0, threads=(polls, waits))
    found = classify_process([spy, kernel])
    assert (found.activity, found.label) == ("lock-wait", "waiting for a lock")
    alone = msgspec.structs.replace(kernel, threads=(polls,))
    assert classify_process([spy, alone]).label == "in write (store.py:40)"


def test_the_state_of_the_process_is_its_main_threads() -> None:
    busy = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True, tid=7)
    still = msgspec.structs.replace(
        thread("loop train.py:24", "run threading.py:982", name="TrainingThread(f)", tid=9),
        active=False,
    )
    trace = StackTrace(process=PROCESS, tool="py-spy", at=1.0, threads=(busy, still), state="R")
    found = classify(trace)
    assert (found.signature[-1], found.state) == ("loop (train.py:24)", "")
    assert kind_of(found, "stuck") == "host-stuck"
    sleeper = msgspec.structs.replace(still, state="S")
    asleep = msgspec.structs.replace(trace, threads=(busy, sleeper))
    assert classify(asleep).state == "S"
    stopped = msgspec.structs.replace(asleep, state="T")
    assert classify(stopped).state == "T"
    alone = msgspec.structs.replace(trace, threads=(busy,))
    assert classify(alone).state == "R"


def test_a_tool_that_failed_does_not_hide_another() -> None:
    (spy,) = parse((FIXTURES / "single/pyspy_plain_spin.txt").read_bytes(), PROCESS)
    failed = StackTrace(process=PROCESS, tool="cuda-gdb", at=0.0, error="refused")
    found = classify_process([failed, spy])
    assert found.error == ""
    assert found.signature
    assert classify_process([failed]).error == "refused"


def test_the_kernels_side_alone_says_why_there_is_no_more() -> None:
    (kernel,) = parse((FIXTURES / "single/kernel_take_input.txt").read_bytes(), PROCESS)
    failed = StackTrace(process=PROCESS, tool="py-spy", at=0.0, error="refused")
    found = classify_process([failed, kernel])
    assert (found.tool, found.error, found.activity) == ("kernel", "refused", "input-wait")


def test_the_device_says_whether_a_wait_for_it_is_a_wait_for_others() -> None:
    (trace,) = parse((FIXTURES / "cuda_kernels.txt").read_bytes(), PROCESS)
    lone = trace.kernels[1:]
    own = classify(StackTrace(process=PROCESS, tool="cuda-gdb", at=0.0, threads=trace.threads,
                              kernels=lone, kernels_listed=True))  # fmt: skip
    assert own.waits_for_others is False
    assert "elementwise" in own.label


@pytest.mark.parametrize(
    ("file", "function", "what"),
    [
        ("torch/utils/data/_utils/worker.py", "_worker_loop", "dataloader worker"),
        ("torch/distributed/elastic/agent/server/api.py", "_invoke_run", "launcher"),
        ("torch/multiprocessing/spawn.py", "join", "launcher"),
    ],
)
def test_processes_that_are_no_ranks(file: str, function: str, what: str) -> None:
    found = main_fact("get queue.py:9", f"{function} {file}:9", "<module> train.py:9")
    assert found.helper == what


def test_each_distinct_stack_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[tuple[Frame, ...]] = []
    real = stack_reading.read

    def read(frames: tuple[Frame, ...]) -> stack_reading.StackReading:
        readings.append(frames)
        return real(frames)

    monkeypatch.setattr(stack_reading, "read", read)
    reader = StackReader()
    one = StackTrace(
        process=PROCESS, tool="py-spy", at=0.0, threads=(thread("f a.py:1", main=True),)
    )
    other = StackTrace(process=ProcessId("n", 8), tool="py-spy", at=0.0,
                       threads=(thread("f a.py:1", main=True),))  # fmt: skip
    assert one.threads[0].frames is not other.threads[0].frames
    classify(one, reader)
    classify(other, reader)
    assert readings == [one.threads[0].frames]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__GI___clock_nanosleep", "clock_nanosleep"),
        ("__futex_abstimed_wait_common64", "futex_abstimed_wait_common"),
        ("__libc_recv", "recv"),
        ("open64", "open"),
        ("__read_nocancel", "read"),
        ("std::function<void ()>::operator()() const", "std::function::operator const"),
        ("void at::native::foo<float>(int)", "at::native::foo"),
        ("gloo::(anonymous namespace)::ring(int)", "gloo::ring"),
        ("nfs_wait.constprop.0", "nfs_wait"),
        ("<<<>>>((", ""),
    ],
)
def test_plain_names(name: str, expected: str) -> None:
    assert plain(name) == expected


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE", "reduce_scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send_recv"),
        ("all_to_all_single", "all_to_all"),
        ("MPI_Bcast", "broadcast"),
        ("monitored_barrier", "barrier"),
        ("cudaStreamSynchronize", ""),
    ],
)
def test_operation_names(name: str, operation: str) -> None:
    assert operation_name(name) == operation


def test_importing_a_compiler_is_not_compiling() -> None:
    found = main_fact(
        "<module> torch/_dynamo/symbolic_convert.py:62",
        "_call_with_frames_removed <frozen importlib._bootstrap>:241",
        "_find_and_load <frozen importlib._bootstrap>:1176",
        "<module> train.py:3",
    )
    assert (found.activity, found.label) == ("startup", "importing a module")


def test_a_tool_that_read_no_frame_of_the_training_thread() -> None:
    training = ThreadStack(tid=7, name="trainer", frames=())
    trace = StackTrace(process=ProcessId("h", 1), tool="gdb", at=0.0, threads=(training,))
    found = classify(trace, tid=7)
    assert found.signature == ()
    assert not found.runs_python
