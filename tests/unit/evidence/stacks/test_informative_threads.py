"""Which thread of a process tells where its rank is."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks.frames.meanings import TASKLESS
from tests.support.stack_lines import fact, thread


def test_the_autograd_thread_tells_where_the_main_thread_is_in_backward() -> None:
    main = thread(
        "_engine_run_backward torch/autograd/graph.py:800", "<module> train.py:9", main=True
    )
    engine = thread("__GI_sched_yield", "ncclGroupEnd", "c10d::Reducer::mark_bucket_ready",
                    "torch::autograd::Engine::thread_main", name="pt_autograd_0")  # fmt: skip
    idle = thread("pthread_cond_wait", "torch::autograd::ReadyQueue::pop", name="pt_autograd_1")
    found = fact([idle, main, engine], "gdb")
    assert (found.activity, found.waits_for_others, found.thread) == (
        "collective-wait", True, "pt_autograd_0",
    )  # fmt: skip


def test_rays_training_thread_tells_where_the_main_thread_is_idle() -> None:
    main = thread("main_loop ray/_private/worker.py:900", "<module> default_worker.py:9", main=True)
    training = thread("all_reduce torch/distributed/distributed_c10d.py:3", "step train.py:4",
                      "run threading.py:900", name="TrainingThread")  # fmt: skip
    logs = thread(
        "print_logs ray/_private/worker.py:3", "run threading.py:900", name="ray_print_logs"
    )
    assert fact([main, training, logs]).thread == "TrainingThread"
    alone = fact([main, logs])
    assert (alone.activity, alone.label) == ("idle", TASKLESS.label)


def test_a_method_that_runs_in_a_thread_of_a_concurrency_group_is_where_its_actor_is() -> None:
    main = thread("main_loop ray/_private/worker.py:1069",
                  "<module> ray/_private/workers/default_worker.py:323", main=True)  # fmt: skip
    method = thread("write store.py:40", "_resume_span ray/util/tracing/tracing_helper.py:463",
                    "actor_method_executor ray/_private/function_manager.py:689",
                    name="ray::Store.write", tid=9)  # fmt: skip
    imports = thread("_run ray/_private/import_thread.py:70", "run threading.py:982", tid=10)
    found = fact([main, imports, method])
    assert found.thread == "ray::Store.write"
    assert found.signature[-1] == "write (store.py:40)"


def test_the_thread_that_watches_ray_trains_training_thread_tells_nothing() -> None:
    main = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True)
    runner = "ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    monitor = thread(f"_monitor_target {runner}:72", "run threading.py:982",
                     name="MonitoringThread(train_fn_with_final_checkpoint_flush)")  # fmt: skip
    training = thread("loop train.py:24", f"_run_target {runner}:37", "run threading.py:982",
                      name="TrainingThread(train_fn_with_final_checkpoint_flush)")  # fmt: skip
    nameless = thread(f"_monitor_target {runner}:72", "run threading.py:982")
    assert fact([main, monitor, nameless, training]).signature[-1] == "loop (train.py:24)"


def test_helpers_never_tell() -> None:
    main = thread("wait threading.py:327", "join threading.py:1100", "<module> a.py:1", main=True)
    watchdog = thread("c10d::ProcessGroupNCCL::watchdogHandler", name="pt_nccl_watchdg")
    proxy = thread("poll", "ncclProxyService", name="python")
    pool = thread("_worker concurrent/futures/thread.py:81", "run threading.py:9", name="x_0")
    pin = thread("get queue.py:1", "do_one_step torch/utils/data/_utils/pin_memory.py:30",
                 "_pin_memory_loop torch/utils/data/_utils/pin_memory.py:50")  # fmt: skip
    found = fact([watchdog, proxy, pool, pin, main])
    assert found.thread == "MainThread"


def test_a_pools_worker_at_work_is_no_helper() -> None:
    main = thread("result concurrent/futures/_base.py:450", "<module> a.py:1", main=True)
    worker = thread(
        "load data.py:4",
        "run concurrent/futures/thread.py:58",
        "_worker concurrent/futures/thread.py:83",
        name="ThreadPoolExecutor-0_0",
    )
    found = fact([main, worker])
    assert found.thread == "ThreadPoolExecutor-0_0"
    assert found.signature[-1] == "load (data.py:4)"


@pytest.mark.parametrize(
    "main",
    ["_engine_run_backward torch/autograd/graph.py:800", "get queue.py:171",
     "wait threading.py:327", "result concurrent/futures/_base.py:450"],
)  # fmt: skip
def test_a_threads_own_timer_does_not_tell_where_the_rank_is(main: str) -> None:
    waiting = thread(main, "<module> a.py:1", main=True)
    timer = thread("tick a.py:9", "run threading.py:982", name="Thread-1 (tick)")
    asleep = thread("clock_nanosleep", "time_sleep", "tick a.py:9", "run threading.py:982")
    assert fact([waiting, timer, asleep]).thread == "MainThread"


def test_the_training_thread_is_told_from_other_threads_of_an_actor() -> None:
    main = thread("main_loop ray/_private/worker.py:900", "<module> w.py:9", main=True)
    asleep = thread("clock_nanosleep", "time_sleep", "tick a.py:9", name="timer")
    training = thread("load a.py:4", "train_fn a.py:9", "run ray/train/_internal/utils.py:60")
    assert fact([main, asleep, training]).signature[-1] == "load (a.py:4)"


IN_QUEUE = thread("wait threading.py:331", "get queue.py:180", "get_next session.py:342",
                  "train trial.py:9", main=True)  # fmt: skip
"""A main thread that waits for whatever another thread puts into a queue."""
FUNCTION = thread("work search.py:40", "try_one search.py:30", "run threading.py:982",
                  name="Thread-3 (run)", tid=9)  # fmt: skip
CONSUMER = thread("wait threading.py:331", "get queue.py:180", "write results.py:20",
                  "run threading.py:982", name="Thread-4 (write)", tid=10)  # fmt: skip


@pytest.mark.parametrize(
    "main",
    ["wait threading.py:327", "get queue.py:171", "join threading.py:1112",
     "result concurrent/futures/_base.py:450"],
)  # fmt: skip
def test_a_thread_that_is_waited_for_is_followed_where_no_other_runs_the_users_code(
    main: str,
) -> None:
    waiting = thread(main, "<module> a.py:1", main=True)
    library = thread("_run anything/heartbeat.py:3", "run threading.py:982", name="io.heartbeat")
    found = fact([waiting, library, CONSUMER, FUNCTION], follows=True)
    assert (found.tid, found.signature[-1]) == (9, "work (search.py:40)")
    assert found.users_code


def test_who_waits_for_a_thread_tells_itself_where_it_cannot_be_known_for_which() -> None:
    other = thread("tick clock.py:4", "run threading.py:982", name="Thread-5 (tick)", tid=11)
    assert fact([IN_QUEUE, FUNCTION, other], follows=True).thread == "MainThread"
    assert fact([IN_QUEUE, CONSUMER], follows=True).thread == "MainThread", "it waits as well"
    assert fact([IN_QUEUE, FUNCTION]).thread == "MainThread", "a rank waits for other ranks"


def test_a_thread_of_the_users_that_waits_for_ray_is_one_of_those_that_are_waited_for() -> None:
    main = thread("join threading.py:1112", "<module> serve.py:30", main=True)
    takes = thread("get_objects ray/_private/worker.py:1007", "get ray/_private/worker.py:3009",
                   "wrapper ray/_private/client_mode_hook.py:104", "take serve.py:25",
                   "run threading.py:982", name="Thread-3 (take)", tid=11)  # fmt: skip
    feeds = thread("feed serve.py:20", "run threading.py:982", name="Thread-4 (feed)", tid=12)
    rays = thread("listen ray/_private/worker.py:2300", "run threading.py:982", tid=13)
    assert fact([main, feeds, takes, rays], follows=True).thread == "MainThread"
    assert fact([main, takes, rays], follows=True).tid == 11


def test_of_an_actor_at_rest_the_thread_with_the_users_code_tells() -> None:
    main = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True)
    loop = thread("_run_user_code_event_loop ray/serve/_private/replica.py:3746",
                  "run threading.py:982", name="Thread-1 (_run_user_code_event_loop)")  # fmt: skip
    request = thread("score model.py:4", "run concurrent/futures/thread.py:58",
                     "_worker concurrent/futures/thread.py:83", name="Pool_0")  # fmt: skip
    found = fact([main, loop, request])
    assert (found.thread, found.users_code, found.rests) == ("Pool_0", True, True)
    assert fact([main, CONSUMER, request]).thread == "Pool_0", "the other waits for a thread"
    assert fact([main, loop, CONSUMER]).tid == 10
    idle = fact([main, loop])
    assert (idle.users_code, idle.rests) == (False, True)


def test_of_an_actor_whose_coroutines_wait_its_event_loop_tells() -> None:
    main = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True)
    of_c = thread("run threading.py:982", "_bootstrap_inner threading.py:1045",
                  name="AsyncIO Thread: default", tid=9)  # fmt: skip
    of_python = thread("select selectors.py:468", "_run_once asyncio/base_events.py:1898",
                       "run_forever asyncio/base_events.py:608", "run threading.py:982",
                       name="AsyncIO Thread: io", tid=10)  # fmt: skip
    for loop in (of_c, of_python):
        found = fact([main, loop], follows=True)
        assert (found.tid, found.thread, found.activity) == (loop.tid, loop.name, "idle")
        assert found.signature[-1] == "main_loop (ray/_private/worker.py:1069)"
    assert fact([main, of_c]).thread == "MainThread"
    assert fact([main, of_c, of_python], follows=True).thread == "MainThread", "it may be either"
    executor = "actor_method_executor ray/_private/function_manager.py:689"
    method = thread("write store.py:40", executor, tid=11)
    assert fact([main, of_c, method], follows=True).tid == 11
    driver = thread("run_forever asyncio/base_events.py:608", "<module> a.py:1", main=True)
    assert fact([driver, of_c], follows=True).thread == "MainThread"
    in_thread = thread("run asyncio/runners.py:118", "work a.py:1", tid=12)
    assert fact([main, in_thread], follows=True).tid == 12


def test_an_actor_does_not_rest_while_its_event_loop_runs_a_coroutine() -> None:
    main = thread("main_loop ray/_private/worker.py:1069", "<module> w.py:9", main=True)
    coroutine = thread("match re/__init__.py:166", "ask desk.py:60",
                       "_resume_span ray/util/tracing/tracing_helper.py:520",
                       "run threading.py:982", name="AsyncIO Thread: default", tid=9)  # fmt: skip
    found = fact([main, coroutine], follows=True)
    assert (found.tid, found.users_code, found.rests) == (9, True, False)


def test_what_a_worker_of_ray_data_does_tells_the_thread_of_the_users_function() -> None:
    data = "ray/data/_internal/execution"
    main = thread("wait threading.py:327", "result concurrent/futures/_base.py:451",
                  f"__call__ {data}/util.py:123",
                  f"__call__ {data}/operators/map_transformer.py:200",
                  f"submit {data}/operators/actor_pool_map_operator.py:760", main=True)  # fmt: skip
    function = thread("embed job.py:10", "__call__ job.py:9", "run concurrent/futures/thread.py:58",
                      "_worker concurrent/futures/thread.py:83",
                      name="ThreadPoolExecutor-0_0", tid=9)  # fmt: skip
    found = fact([main, function], follows=True)
    assert (found.tid, found.signature[-1]) == (9, "embed (job.py:10)")
    reads = thread("wait threading.py:331", "get queue.py:180",
                   "iter_threaded ray/data/_internal/block_batching/util.py:151",
                   "<module> job.py:20", main=True)  # fmt: skip
    assert fact([reads], follows=True).activity == "input-wait"


def test_a_further_thread_in_the_users_code_is_noticed() -> None:
    main = thread("get ray/_private/worker.py:2822", "main train.py:9", main=True, tid=7)
    feeder = thread("sleep time.py:1", "feed train.py:4", "run threading.py:982", tid=8)
    library = thread("wait threading.py:327", "run tensorboard/summary/writer.py:3", tid=9)
    assert fact([main, feeder, library], follows=True).users_code_beside
    assert not fact([main, library], follows=True).users_code_beside
    in_pool = thread("result concurrent/futures/_base.py:451", "main train.py:9", main=True, tid=7)
    asks = thread(
        "get ray/_private/worker.py:2822", "ask train.py:5", "run threading.py:982", tid=8
    )
    found = fact([in_pool, asks], follows=True)
    assert (found.tid, found.users_code_beside) == (8, False), "the main thread waits for this one"
