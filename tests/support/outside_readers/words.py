"""The words that formats are made of."""

from __future__ import annotations

LOG_WORDS = (
    b"Traceback (most recent call last):",
    b'  File "/app/train.py", line 3, in f',
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    b"During handling of the above exception, another exception occurred:",
    b"[rank3]: ValueError: boom",
    b"(Trainer pid=7, ip=10.0.0.2) ",
    b"[repeated 7x across cluster]",
    b"2025-01-02 10:00:00 completed step: 7, seconds: 1.0, loss: 2.0",
    b"step 7/100 loss 2.0 time 1.0s",
    b" 45%|####      | 45/100 [00:10<00:12, 1.2it/s, loss=2.0]",
    b"[PG ID 0 PG GUID 0(default_pg) Rank 1] Timeout at NCCL work: 808, last enqueued NCCL work: "
    b"810, last completed NCCL work: 807",
    b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, ",
    b"resuming from checkpoint at step 3",
    b"exitcode  : -9 (pid: 17)",
    b"Root Cause (first observed failure):",
    b"NCCL WARN Call to connect returned Connection refused",
    b'{"log":"x\\n","stream":"stdout","time":"2025-01-02T10:00:00Z"}',
    b'{"message": "Traceback (most recent call last):\\n  File \\"a.py\\", line 1',
    b"slurmstepd: error: Detected 1 oom_kill event",
    b"(ip=10.0.0.2, pid=4711) world_rank=3, local_rank=1, node_rank=0",
)
GDB_WORDS = (
    b'Thread 7 (Thread 0x7f01 (LWP 7) "python"):',
    b'#0  0x00007f in __futex_abstimed_wait (a=1, b=0x7f "x") at ../sysdeps/nptl/futex.c:57',
    b"#1  std::map<std::vector<int, std::less<int> >, void (*)(int)>::at<(lambda)> () from x.so",
    b"[New LWP 7]",
)
CUDA_WORDS = (
    b"  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation",
    b"*      0      -   0    1 Active 0x000001 (1,1,1) (1,1,1) ncclDevKernel_AllReduce(x)",
)
KERNEL_WORDS = (
    b"[<0>] futex_wait_queue+0x60/0xa0",
    b"task:python state:D stack:0 pid:7 tgid:7 ppid:1",
    b"State: D (disk sleep)",
    b"/proc/7/task/8/stack",
)
PYSPY_WORDS = (
    b'Thread 7 (idle): "MainThread"',
    b"    wait (threading.py:331)",
    b"Process 7: python train.py",
    b"Python v3.11.2 (/usr/bin/python3)",
    b"    Locals:",
)
FAULT_WORDS = (
    b"Current thread 0x00007f (most recent call first):",
    b'  File "/usr/lib/python3.11/threading.py", line 331 in wait',
    b"Fatal Python error: Segmentation fault",
)
PYSTACK_WORDS = (
    b"Traceback for thread 7 (python) [] (most recent call last):",
    b'    (Python) File "/a.py", line 3, in f',
)
PREFIXES = (
    b"[rank3]: Thread 7 (idle)",
    b"w-1  | Thread 7 (idle)",
    b"=== rank 3 on node-1 ===",
    b"(Worker pid=7, ip=10.0.0.1) Thread 7 (idle)",
)
STACK_WORDS = (*GDB_WORDS[:2], *KERNEL_WORDS[:2], *PYSPY_WORDS[:3], *FAULT_WORDS[:2], *PREFIXES)
RAS_WORDS = (
    b"NCCL version 2.28.9 compiled with CUDA 13.0",
    b"Job summary",
    b"Communicators... (0.02s)",
    b"#1-1 (ab12) INCOMPLETE",
    b"  Missing communicator data from 3 ranks",
    b"  The missing ranks: 1, 2, 3",
    b"  Rank 3 has launched up to operation 5 -- GPU 1 managed by process 3 on node a",
    b"  7 ranks have launched up to operation 12",
    b"  Process 7 on node a managing GPUs 1,2 (NVML 1,2)",
    b"  Communicator ranks have different AllReduce operation counts",
    b"PEER_DEAD: Process 7 on node a, ",
    b" 1  8  8  8  8  8 RUNNING OK",
    b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, ",
)
JSON_WORDS = (
    b'{"communicators": [{"hash": "ab", "size": 8, "ranks": [{"rank": 1, "host": "a"}]}]}',
    b'"missing_ranks": [{"rank": 3 "unresponsive": true}],',
    b'{"a" 1}',
    b'"\\u00',
)
RECORDER_WORDS = (
    b'{"frames": [], "record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], '
    b'"collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "profiling_name": "gloo:all_reduce", '
    b'"state": "scheduled"},',
    b'"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},',
)
EXPOSITION_WORDS = (
    b"# HELP x_total y",
    b"# TYPE x_total counter",
    b'x_total{a="b",c="d"} 1',
    b'x{a="\\\\',
    b"# STATE x",
)
YAML_WORDS = (
    b"a: 20:30",
    b"- - - a",
    b"a: &b [*b]",
    b"? a",
    b"{a: [",
    b"'a",
    b"a: |",
    b"%YAML 1.1",
)
KMSG_WORDS = (
    b"6,1234,567,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    b"{1}[Hardware Error]: event severity: fatal",
    b"[    1.5] Out of memory: Killed process 1 (x) total-vm:1kB",
    b"Aug 30 11:11:22 host kernel: oom-kill:constraint=C,pid=1,uid=0",
    b" SUBSYSTEM=pci",
    b"2024-08-30T11:11:22+0000 host kernel: amdgpu 0000:3b:00.0: amdgpu: x",
)
HTTP = b"GET /api/v1/status?a=b HTTP/1.1\r\n"
SECRETS = (
    b"export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345",
    b"https://user:password@host/path?token=abc&sig=def",
    b"-----BEGIN RSA PRIVATE KEY-----\\nMIIE",
    b"Authorization: Bearer abc.def.ghi",
    b'{"password": "a b c", "apiKey": "x',
    b"curl -u user:pass --token",
    b"password=",
)
ARGUMENTS = (
    b"PASSTHROUGH_ARGS: steps=100 a='b",
    b"NODE_LIST=n[001-003,7],x",
    b"n[1-9999]",
    b"Config param a: b",
    b"task:7",
    b"stopped sending heartbeats",
    b"manifest.ocdbt /7/",
    b"NCCL INFO comm x Init COMPLETE",
)
