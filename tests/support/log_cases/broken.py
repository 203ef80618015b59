# ruff: noqa: E501 - log lines are as long as they are
"""Connections lost in mid-training, links down, kernels with bad addresses, starts without end."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, NOBODY, STEPS, Case

_AT = "2025-05-01 10:01:{s:02d},000 ERROR "
_START = "2025-05-01 10:00:00,000 INFO starting\n"
_GLOO = "[rank3]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:{0}\n"
_LOST = {
    "gloo closed": _GLOO.format("534] Connection closed by peer [10.0.0.3]:12345"),
    "gloo reset": _GLOO.format("547] Connection reset by peer [10.0.0.3]:12345"),
    "gloo timed out": _GLOO.format("553] Read error [10.0.0.3]:12345: Connection timed out"),
    "nccl socket": "n1:100:200 [3] misc/socket.cc:58 NCCL WARN socketProgress: Call to recv from 10.0.0.2<1234> failed : Connection timed out\n",
    "nccl route": "n1:100:200 [3] misc/socket.cc:58 NCCL WARN Call to recv from 10.0.0.2<1234> failed : No route to host\n",
    "nccl completion": "n1:100:200 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=129 len=65536 vendor err 129 (Recv)\n",
    "ucx": "[1746093661.123456] [node1:100:0] ib_mlx5_log.c:179  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n",
    "ucx endpoint": "[1746093661.123456] [node1:100:0] ucp_worker.c:577  UCX  ERROR Unhandled error: Endpoint timeout\n",
    "store closed": "[rank3]: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?\n",
    "store timed out": "[rank3]: torch.distributed.DistStoreError: Socket Timeout\n",
    "grpc": '[rank3]: grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n[rank3]: \tstatus = StatusCode.UNAVAILABLE\n[rank3]: \tdetails = "Socket closed"\n',
    "python": "[rank3]: TimeoutError: [Errno 110] Connection timed out\n",
}
_REMOTE = """\
[rank3]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.19.3
[rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
[rank3]: Last error:
[rank3]: socketProgress: Connection closed by remote peer node1<45678>
"""
_TORCHRUN = """\
E0501 10:01:30.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: 1) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-01_10:01:29
  host      : node1
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 1003)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
_OOM = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
_WATCHDOG = "[rank{0}]:[E501 10:11:05.000000000 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45390, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"
_DOWN = {
    "nccl, non-fatal": "n1:100:200 [3] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)\n",
    "nccl, fatal": "n1:100:200 [3] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 async fatal event: local catastrophic error\n",
    "ucx": "[1746093661.1] [node1:100:0] ib_device.c:472 UCX  WARN  IB Async event on mlx5_0: port error on port 1\n",
    "verbs": _AT.format(s=5) + "IBV_EVENT_PORT_ERR on mlx5_2 port 1\n",
    "mlx5": _AT.format(s=5) + "node5 mlx5_core 0000:1a:00.0 ib0: link down\n",
    "cable": "mlx5_core 0000:41:00.0: Port module event: module 0, Cable unplugged\n",
    "state": "mlx5_0: Port 1 state changed to DOWN\n",
}
_ILLEGAL = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
_XID = "[Thu May  1 10:01:05 2025] NVRM: Xid (PCI:0000:3b:00): {0}, pid=1234, name=python, Ch 00000008\n"


def _waits(first: str, line: str, minutes: int) -> str:
    """``first`` at 10:00, then ``line`` every two minutes."""
    lines = [
        f"2025-05-01 {10 + m // 60:02d}:{m % 60:02d}:00,000 INFO {line.format(m=m)}\n"
        for m in range(2, minutes, 2)
    ]
    return f"2025-05-01 10:00:00,000 INFO {first}\n" + "".join(lines)


_CANCELLED = "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2025-05-01T13:30:00 DUE TO TIME LIMIT ***\n"
_INIT, _JOIN = "Calling init_process_group(backend=nccl)", "Waiting for 2 more workers to join"

CASES: dict[str, Case] = {
    **{
        f"lost after steps: {k}": Case("transport-lost", NOBODY, STEPS + v)
        for k, v in _LOST.items()
    },
    "lost after steps: a remote error": Case("transport-lost", NOBODY, STEPS + _REMOTE),
    "lost before the first step: gloo": Case("rendezvous", NOBODY, _START + _LOST["gloo closed"]),
    "lost before the first step: store": Case(
        "rendezvous", NOBODY, _START + _LOST["store timed out"]
    ),
    "lost before the first step: gRPC": Case("rendezvous", NOBODY, _START + _LOST["grpc"]),
    "lost, and torchrun's table accuses who saw it": Case(
        "transport-lost", NOBODY, STEPS + _LOST["gloo timed out"] + _TORCHRUN
    ),
    "lost, and a rank tells more within a minute": Case(
        "oom-gpu",
        {"rank": 5},
        STEPS + _AT.format(s=5) + _LOST["gloo closed"] + _AT.format(s=40) + _OOM,
    ),
    "lost ten minutes before the others' time-out": Case(
        "transport-lost",
        NOBODY,
        STEPS
        + _AT.format(s=5)
        + _LOST["gloo reset"]
        + "".join(_WATCHDOG.format(r) for r in (0, 1)),
    ),
    **{f"link down: {k}": Case("link-down", ANYBODY, STEPS + v) for k, v in _DOWN.items()},
    "link down, and training goes on": Case(
        "unknown-death",
        ANYBODY,
        STEPS[: len(STEPS) // 2].rpartition("\n")[0]
        + "\n"
        + _DOWN["mlx5"]
        + STEPS[len(STEPS) // 2 :].partition("\n")[2],
    ),
    "a port that is not used is down": Case(
        "config",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO rdma link\nlink mlx5_3/1 state DOWN physical_state DISABLED netdev eth3\n"
        + "4: ib3: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 4092 qdisc mq state DOWN mode DEFAULT group default\n"
        + "2025-05-01 10:00:05,000 ERROR huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url https://huggingface.co/x.\n",
    ),
    "illegal address": Case("illegal-memory-access", {"rank": 3}, STEPS + _ILLEGAL),
    "illegal address, and the driver beside it": Case(
        "illegal-memory-access",
        {"rank": 3, "gpu": "0000:3b:00"},
        {"job.log": STEPS + _ILLEGAL, "dmesg.log": _XID.format(31) + _XID.format(43)},
    ),
    "illegal address in a kernel log alone": Case(
        "illegal-memory-access", {"gpu": "0000:3b:00", "pid": 1234}, STEPS + _XID.format(13)
    ),
    "illegal address after the driver cleaned up": Case(
        "illegal-memory-access", {"rank": 3}, STEPS + _XID.format(45) + _ILLEGAL
    ),
    "illegal address as cuda-gdb says it": Case(
        "illegal-memory-access",
        {"gpu": "3"},
        STEPS
        + 'Thread 1 "python" received signal CUDA_EXCEPTION_14, Warp Illegal Address.\n'
        + "[Switching focus to CUDA kernel 2, grid 406, block (0,0,0), thread (384,0,0), device 3, sm 0, warp 14, lane 0]\n",
    ),
    "illegal address under NCCL": Case(
        "illegal-memory-access",
        {"rank": 3},
        STEPS
        + "[rank3]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.19.3\n"
        + "[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank3]: Last error:\n"
        + "[rank3]: Cuda failure 700 'an illegal memory access was encountered'\n",
    ),
    "a start without end": Case("startup-stuck", NOBODY, _waits(_INIT, _JOIN, 180)),
    "a start without end, cancelled": Case(
        "startup-stuck", NOBODY, _waits(_INIT, _JOIN, 180) + _CANCELLED
    ),
    "a start without end, in other words": Case(
        "startup-stuck", NOBODY, _waits("creating placement group", "still working on it", 120)
    ),
    "a start within its limit": Case("unknown-death", NOBODY, _waits(_INIT, _JOIN, 12)),
    "a start that is slow": Case(
        "unknown-death",
        NOBODY,
        _waits("Starting to load model", "Loading safetensors checkpoint shards: {m}/200", 190),
    ),
    "a start that was slow": Case(
        "unknown-death",
        ANYBODY,
        _waits(_INIT, _JOIN, 180) + STEPS.replace("2025-05-01 10", "2025-05-01 14"),
    ),
}
