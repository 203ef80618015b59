"""Outputs as people post them: layouts of several debugger versions, with their frames' names.

The listings are shortened and renumbered after public reports: gdb on a program that hangs in
``ncclGroupEnd`` (github.com/NVIDIA/nccl, issue 901), cuda-gdb 11 on one that hangs in an old ring
kernel (github.com/k2-fsa/snowfall, pull 71), py-spy on inference workers (vLLM, SGLang).
"""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import explain

NCCL_PROXY = """\
Thread 3 (Thread 0x7f322e3fa000 (LWP {helper})):
#0  futex_wait_cancelable (private=<optimized out>, expected=0, futex_word=0x7f32) at futex.h:183
#1  __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x7f322e7fb108) at wait.c:508
#2  0x00007f326f3d9740 in ncclProxyGetPostedOps (added=<synthetic pointer>) at proxy.cc:713
#3  ncclProxyProgress (proxyState_=0x5603cb96d1e0) at proxy.cc:868
#4  0x00007f326f33f609 in start_thread (arg=<optimized out>) at pthread_create.c:477

"""
IN_LAUNCH = """\
Thread 1 (Thread 0x7f16a03ad000 (LWP {pid})):
#0  0x00007f169ee85534 in ?? () from /lib/x86_64-linux-gnu/libcuda.so
#1  0x00007f169ed1a75f in ?? () from /lib/x86_64-linux-gnu/libcuda.so
#2  0x00007f16a0c2810b in __cudart803 () from /usr/local/lib/libnccl.so.2
#3  0x00007f16a0c82fe6 in cudaLaunchKernel () from /usr/local/lib/libnccl.so.2
#4  0x00007f16a0b8d7bd in ncclLaunchKernel (comm=comm@entry=0x562475c915f0) at enqueue.cc:1092
#5  0x00007f16a0b92dd3 in doLaunches (head=<optimized out>) at group.cc:163
#6  groupLaunch (job_=<optimized out>) at group.cc:325
#7  0x00007f16a0b93908 in ncclGroupEndInternal () at group.cc:406
[Inferior 1 (process {pid}) detached]
"""
ELSEWHERE = """\
Thread 1 (Thread 0x7f16a03ad000 (LWP {pid})):
#0  0x00007f169ee85534 in __GI___poll (fds=0x7ffd, nfds=1, timeout=-1) at poll.c:29
#1  0x00007f1600000000 in feed::take (this=0x55) at src/feed.cpp:120
#2  0x00007f1600000001 in main () at main.cc:33
[Inferior 1 (process {pid}) detached]
"""
SYNCHRONIZE = """\

Thread 1 (Thread 0x7f16a03ad000 (LWP {pid}) "python"):
#0  0x00007f169ee85534 in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1
#1  0x00007f169ed1a75f in cudaStreamSynchronize () from /opt/conda/lib/libcudart.so.11.0
#2  0x00007f169ed1a75f in THCPModule_cudaSynchronize (_unused=0x0) from libtorch_python.so
#3  0x0000000000507cd4 in _PyEval_EvalFrameDefault ()
"""
KERNELS_11 = """\
NVIDIA (R) CUDA Debugger
11.4 release
  Kernel Parent Dev     Grid Status   SMs Mask GridDim BlockDim Invocation
*      0      -   0 52162520 Active 0x00000001 (1,1,1)  (64,1,1) {kernel}()
"""


def facts(*texts: str, tool: str) -> list[StackFact]:
    return [
        classify(trace)
        for number, text in enumerate(texts)
        for trace in parse(text, ProcessId("n", 100 + number), hint=tool)
    ]


def culprits(found: list[StackFact]) -> list[int | None]:
    return [culprit.pid for culprit in explain([found]).culprits]


def test_gdb_on_a_program_without_python() -> None:
    waits = [NCCL_PROXY + IN_LAUNCH] * 3
    texts = [*waits, NCCL_PROXY + ELSEWHERE]
    found = facts(*(t.format(pid=100 + i, helper=900) for i, t in enumerate(texts)), tool="gdb")
    assert [fact.activity for fact in found[:3]] == ["collective-wait"] * 3
    assert culprits(found) == [103]


def test_cuda_gdb_11_tells_the_odd_kernel() -> None:
    kernels = ["ncclReduceRingLLKernel_sum_f64"] * 3 + ["my_softmax_kernel<float>"]
    texts = [
        KERNELS_11.format(kernel=kernel) + SYNCHRONIZE.format(pid=100 + i)
        for i, kernel in enumerate(kernels)
    ]
    found = facts(*texts, tool="cudagdb")
    assert found[0].operation == "reduce"
    assert found[3].waits_for_others is False
    assert culprits(found) == [103]
    assert explain([found]).kind == "device-stuck"


@pytest.mark.parametrize(
    ("title", "waiting", "apart"),
    [
        (
            "VLLM::Worker_TP{rank}",
            "all_gather (vllm/distributed/parallel_state.py:380)",
            "apply_grammar (vllm/v1/worker/gpu_model_runner.py:880)",
        ),
        (
            "sglang::scheduler_TP{rank}",
            "broadcast (torch/distributed/distributed_c10d.py:2421)",
            "match_prefix (sglang/srt/mem_cache/radix_cache.py:80)",
        ),
    ],
)
def test_py_spy_on_inference_workers(title: str, waiting: str, apart: str) -> None:
    texts = [
        f"Process {100 + rank}: {title.format(rank=rank)}\nPython v3.12.9 (/usr/bin/python3.12)\n\n"
        f'Thread {100 + rank} (active): "MainThread"\n'
        f"    {apart if rank == 1 else waiting}\n    busy_loop (engine/worker.py:465)\n"
        f'Thread {700 + rank} (idle): "Thread-1 (_report_usage)"\n    wait (threading.py:359)\n'
        for rank in range(4)
    ]
    found = facts(*texts, tool="pyspy")
    assert culprits(found) == [101]


def test_py_spy_with_locals_and_a_tool_that_timed_out() -> None:
    text = (
        'Process 3: python train.py\n\nThread 3 (active): "MainThread"\n'
        "    take (app/feed.py:40)\n        Arguments:\n            n: 4096\n"
        '        Locals:\n            text: "all_reduce (torch/distributed/c10d.py:1)"\n'
        "    main (train.py:90)\n"
    )
    (fact,) = facts(text, tool="pyspy")
    assert fact.signature == ("main (train.py:90)", "take (app/feed.py:40)")
    (failed,) = facts("cuda-gdb failed or timed out\n", tool="cudagdb")
    assert "in time" in failed.error
    assert failed.signature == ()
