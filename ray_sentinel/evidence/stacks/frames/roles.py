"""Threads and processes that only help: their stacks do not show where the rank is."""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.frames.names import last_name, plain
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_THREAD_NAMES = re.compile(
    r"pt_(nccl_watchdg|nccl_heartbt|gloo_runloop|tcpstore\w*|elastic\w*|main_\w*monitor\w*)"
    r"|gloo_tcp_loop|nccl\w*|NCCL\w*|cuda\d{2,}\w*|cuda-EvtHandlr|rocr?\w*|hsa\w*"
    r"|grpc\w*|default-executo|resolver-executo|event_engine|timer_manager|lifeguard"
    r"|jemalloc\w*|QueueFeederThread|tqdm\w*|TMonitor|.*EventLogger.*|.*pin_memory.*"
    r"|worker\.io|client\.poll|.*\.io|raylet\w*|ray_\w+|rocksdb.*|OpenBLAS.*|Monitor(ing)?Thread.*"
    r"|ray[-_ ]sentinel.*|wandb.*|asyncio-waitpid.*|tokio\w*|rayon\w*|TaskScheduler.*"
    r"|IntermediateResultsWriter.*|.*heartbeat.*|.*[wW]atchdog.*",
)

# (last name of the function, file) of a Python frame anywhere in a helper thread.
_THREAD_PYTHON: tuple[tuple[str, str], ...] = (
    (r"_feed", r"multiprocessing/queues\.py$"),
    (r"_pin_memory_loop|do_one_step", r"torch/utils/data/_utils/pin_memory\.py$"),
    (r"run", r"tqdm/_monitor\.py$"),
    (r"_read_thread|.*", r"torch/_inductor/compile_worker/"),
    (r".*", r"tensorboard/|tensorboardX/|torch/utils/tensorboard/"),
    (r".*", r"(^|/)(wandb|mlflow|comet_ml|neptune|swanlab|clearml)/"),
    (r".*", r"(^|/)ray_sentinel/"),
    (r".*", r"torch/distributed/elastic/(timer|metrics|events|agent/server/health_check)"),
    (
        r".*",
        # Ray's own threads; not those in which it runs the methods of an actor.
        r"ray/(_private/(?!worker\.py|workers/|function_manager\.py)|profiling\.py"
        r"|import_thread\.py|util/tracing/(?!tracing_helper\.py)|dashboard/)",
    ),
    (r"listen_error_messages|print_logs|_print_logs|print_worker_logs", r"ray/_private/worker\.py"),
    (r".*", r"(^|/)(prometheus_client|pydevd\w*|debugpy|ipykernel|opentelemetry|sentry_sdk)/"),
    (r"_monitor_target", r"ray/train/.*/thread_runner\.py$"),
    (r"watchdog_thread|_?heartbeat\w*|_?watchdog\w*", r".*"),
    (r"_thread_main|_handle_(tasks|results|workers)", r"multiprocessing/pool\.py$"),
    (r"run", r"concurrent/futures/process\.py$"),
)
# Waiting for work: helpers while their innermost Python frame is one of these.
_IDLE_PYTHON: tuple[tuple[str, str], ...] = (
    (r"_worker", r"concurrent/futures/thread\.py$"),
    (r"worker", r"multiprocessing/pool\.py$"),
    (r"main_loop", r"ray/_private/worker\.py$"),
    (r"_bootstrap(_inner)?|run", r"(^|/)threading\.py$"),
)
_THREAD_NATIVE = re.compile(
    r"c10d::ProcessGroupNCCL::(\w*[wW]atchdog\w*|\w*[hH]eartbeat\w*|runHookLoop)(::.*)?"
    r"|c10d::(detail::)?\w*(Daemon|Background\w*)::.*|c10d::ProcessGroupGloo::runLoop"
    r"|c10d::HeartbeatMonitor::.*|ncclProxy\w+|ncclRas\w+|rasThread\w*|gloo::.*::Loop::run"
    r"|c10::ThreadPool::main_loop|at::ThreadPool.*|torch::autograd::ReadyQueue::pop"
    r"|torch::autograd::Engine::reentrant_thread_init|gomp_\w+|_?_?kmp_\w+|kmp_\w+"
    r"|tbb::.*|blas_thread_server|exec_blas\w*|event_base_loop|grpc_core::.*|grpc_event_engine::.*"
    r"|ucs_async_\w+|rd_kafka_\w+|horovod::common::.*BackgroundThreadLoop|hsa::.*|rocr::.*"
    r"|pthreadpool\w*|thread_entry_point|Eigen::ThreadPool\w*.*|tsl::.*ThreadPool.*"
    r"|boost::asio::.*|ray::core::CoreWorker\w*::RunIOService|instrumented_io_context::.*"
    r"|rayon_core::.*|tokio::.*|uv_run|background_thread_entry|je_background_thread\w*"
    r"|cuEGLApiInit|cuGetExportTable|cudbg\w*"
)

# Whole processes. (function, file, what it is, whether it must be the innermost Python frame)
_PROCESSES: tuple[tuple[str, str, str, bool], ...] = (
    (r"_worker_loop", r"(torch/utils/data/_utils|torchdata/\w+)/worker\.py$",
     "dataloader worker", False),
    (r"_invoke_run|_monitor_workers|run_agent|launch_agent",
     r"torch/distributed/(elastic/agent/|launcher/)", "launcher", False),
    (r"join|start_processes", r"torch/multiprocessing/spawn\.py$", "launcher", False),
    (r".*", r"(^|/)(deepspeed/launcher|accelerate/commands/launch|horovod/runner|mpirun)",
     "launcher", False),
    (r"_run_server|serve_forever", r"multiprocessing/managers\.py$", "Python's own", False),
    (r"main", r"multiprocessing/(resource_tracker|forkserver)\.py$", "Python's own", True),
    (r".*", r"torch/_inductor/compile_worker/__main__", "compile worker", False),
    (r".*", r"sglang/srt/managers/(detokenizer_manager|tokenizer_manager|data_parallel_controller)",
     "engine front end", False),
    (r".*", r"(^|/)(sglang_router|sglang/srt/entrypoints/http_server|vllm/entrypoints/openai"
     r"|uvicorn|gunicorn|hypercorn)(/|\.py)", "engine front end", False),
    (r".*", r"(^|/)ray/(dashboard|_private/(log_monitor|runtime_env/agent|gcs_)|autoscaler)",
     "Ray's own", False),
    (r".*", r"(^|/)(tensorboard/(main|program)|jupyter\w*/|ipykernel/kernelapp)", "tool", False),
    (r".*", r"(^|/)ray_sentinel/(actors|collect|cli)/", "sentinel", False),
)  # fmt: skip
_COMMANDS = re.compile(
    r"multiprocessing\.(resource_tracker|forkserver|semaphore_tracker)"
    r"|(^|/|\s)(torchrun|torch\.distributed\.(run|launch)|raylet|gcs_server|sglang_router|mpirun"
    r"|deepspeed\.launcher\.\w+|tensorboard)(\s|$)|sglang::(detokenizer|router|data_parallel)"
    r"|ray::(IDLE|_Sentinel)|torch/_inductor/compile_worker|log_monitor\.py|dashboard/agent\.py"
)

_COMPILED = {
    name: tuple((re.compile(f), re.compile(p)) for f, p in rows)
    for name, rows in (("thread", _THREAD_PYTHON), ("idle", _IDLE_PYTHON))
}
_COMPILED_PROCESSES = tuple((re.compile(f), re.compile(p), w, i) for f, p, w, i in _PROCESSES)


def is_helper(thread: ThreadStack) -> bool:
    """Whether a thread serves a library, so that its place says nothing about the training.

    Never true of the main thread.
    """
    if thread.main:
        return False
    if thread.name and _THREAD_NAMES.fullmatch(thread.name):
        return True
    return helps(thread.frames)


def helps(frames: tuple[Frame, ...]) -> bool:
    """Whether frames are those of a library's own thread, or of an idle pool thread."""
    innermost = next((frame for frame in frames if not frame.native), None)
    if innermost is not None and _matches(innermost, "idle"):
        return True
    return any(
        _THREAD_NATIVE.fullmatch(plain(frame.function))
        if frame.native
        else _matches(frame, "thread")
        for frame in frames
    )


def _matches(frame: Frame, table: str) -> bool:
    name = last_name(frame.function)
    return any(f.fullmatch(name) and p.search(frame.file) for f, p in _COMPILED[table])


_TRAINS = re.compile(r"(^|/)ray/(train|air)/|(^|/)lightning/|(^|/)torch/distributed/")


def trains(thread: ThreadStack) -> bool:
    """Whether a thread is the one in which an actor runs the training function."""
    return "train" in thread.name.lower() or any(
        _TRAINS.search(frame.file) for frame in thread.frames if not frame.native
    )


def runs_method(thread: ThreadStack) -> bool:
    """Whether Ray runs an actor's method in this thread: one of a concurrency group, or of an actor
    with ``max_concurrency`` (``actor_method_executor`` in Ray's ``function_manager.py``)."""
    return any(
        not frame.native
        and frame.file.endswith("ray/_private/function_manager.py")
        and last_name(frame.function) == "actor_method_executor"
        for frame in thread.frames
    )


def runs_coroutines(thread: ThreadStack) -> bool:
    """Whether Ray runs an actor's coroutines in this thread. It has its name from Ray, whatever
    implements its event loop (uvloop has no Python frames)."""
    return thread.name.startswith("AsyncIO Thread")


def runs_event_loop(thread: ThreadStack) -> bool:
    """Whether an event loop runs in a thread: one of Ray's, or one that ``asyncio`` has started."""
    return runs_coroutines(thread) or any(
        not frame.native and _RUNS_LOOP.search(f"{last_name(frame.function)} {frame.file}")
        for frame in thread.frames
    )


_RUNS_LOOP = re.compile(r"^(run_forever .*asyncio/base_events|run .*asyncio/runners)\.py$")


_ENGINE = re.compile(r"torch::autograd::(python::Python)?Engine::(thread_\w+|evaluate_function)")


def of_engine(thread: ThreadStack) -> bool:
    """Whether a thread belongs to the autograd engine: it runs hooks, or a node of the graph.

    Machine code started it, so its outermost Python frame is a hook, not a thread's ``_bootstrap``,
    and Python has no name for it.
    """
    if any(frame.native and _ENGINE.match(plain(frame.function)) for frame in thread.frames):
        return True
    outermost = next((frame for frame in reversed(thread.frames) if not frame.native), None)
    return (
        not thread.name
        and outermost is not None
        and outermost.function != "<module>"
        and not outermost.file.endswith("threading.py")
    )


# ThreadPoolExecutor appends a counter to the name that its threads are given.
_POOL_THREAD = re.compile(r"[\w.-]*[A-Za-z][\w.-]*_\d{1,4}")


def works_in_pool(thread: ThreadStack) -> bool:
    """Whether a thread belongs to a pool."""
    if _POOL_THREAD.fullmatch(thread.name):
        return True
    frames = thread.frames
    return any(
        last_name(frame.function) in ("_worker", "worker")
        and frame.file.endswith(("concurrent/futures/thread.py", "multiprocessing/pool.py"))
        for frame in frames
        if not frame.native
    )


def helper_process(trace: StackTrace) -> str:
    """The role of a process that is not a rank ("launcher", "dataloader worker"), or ""."""
    main = next((thread for thread in trace.threads if thread.main), None)
    if main is not None:
        python = [frame for frame in main.frames if not frame.native]
        for index, frame in enumerate(python):
            name = last_name(frame.function)
            for function, file, what, innermost in _COMPILED_PROCESSES:
                if (index and innermost) or not function.fullmatch(name):
                    continue
                if file.search(frame.file):
                    return what
    return "launcher or helper" if _COMMANDS.search(trace.command[:2_000]) else ""
