# ruff: noqa: E501 - log lines are as long as they are
"""A simulated job that writes log lines with times, ranks and prefixes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

START = 1_741_600_000.0
RANKS = 8
NODES = ("node001", "node002")
PIDS = {rank: 41000 + 17 * rank for rank in range(RANKS)}


@dataclass
class Line:
    time: float
    rank: int | None
    text: str
    file: str = ""
    """A file of its own ("dmesg-node002.log"); empty for the job's output."""


@dataclass
class Job:
    """Lines in the order in which they were written."""

    seed: int
    lines: list[Line] = field(default_factory=list)
    now: float = START
    step: int = 0
    seconds: float = 1.5

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def say(self, text: str, rank: int | None = None, after: float = 0.001, file: str = "") -> None:
        """One line (or several, split at newlines), a moment later."""
        self.now += after
        for part in text.split("\n"):
            self.lines.append(Line(self.now, rank, part, file))

    def iso(self) -> str:
        return stamp(self.now)

    def header(self, style: str) -> None:
        self.say("NNODES=2")
        self.say(f"PASSTHROUGH_ARGS=steps=20000 checkpoint_period=500 style={style}")
        self.say(f"{self.iso()} INFO launcher: world_size: {RANKS}")
        for rank in range(RANKS):
            self.say(f"{self.iso()} INFO rank {rank} of {RANKS} starts, pid {PIDS[rank]}", rank)
        for rank in range(RANKS):
            for channel in range(8):
                self.say(
                    f"{node_of(rank)}:{PIDS[rank]}:{PIDS[rank] + 5} [{rank % 4}] NCCL INFO Channel "
                    f"{channel:02d}/0 : {rank}[{rank}] -> {(rank + 1) % RANKS}[0] via P2P/CUMEM",
                    rank,
                )

    def train(self, steps: int, writer: Callable[[Job], str], chatter: float = 0.35) -> None:
        """Healthy steps, with chatter and decoys in between."""
        for _ in range(steps):
            self.step += 1
            self.now += self.seconds * self.random.uniform(0.97, 1.03)
            self.say(writer(self), 0)
            if self.random.random() < chatter:
                self.say(self.random.choice(CHATTER)(self), self.random.randrange(RANKS))
            if self.step % 500 == 0:
                self.say(f"{self.iso()} INFO saved checkpoint for step {self.step} (12.1 s)", 0)

    def traceback(self, rank: int, kind: str, message: str, where: str = "train.py") -> None:
        self.say(
            "Traceback (most recent call last):\n"
            f'  File "/app/{where}", line 211, in <module>\n'
            "    main()\n"
            f'  File "/app/{where}", line 97, in train_step\n'
            "    out = self.forward(batch)\n"
            f"{kind}: {message}",
            rank,
        )

    def torchrun_end(self, rank: int, code: int, peers: int = -15) -> None:
        """What torchrun prints when ``rank`` ended with ``code``."""
        for other in range(RANKS):
            if other != rank:
                self.say(
                    f"W{glog(self.now)} 900 torch/distributed/elastic/multiprocessing/api.py:900] "
                    f"Sending process {PIDS[other]} closing signal SIGTERM"
                )
        self.say(
            f"E{glog(self.now)} 900 torch/distributed/elastic/multiprocessing/api.py:874] failed "
            f"(exitcode: {code}) local_rank: {rank % 4} (pid: {PIDS[rank]}) of binary: /usr/bin/python3"
        )
        message = {
            -9: f"Signal 9 (SIGKILL) received by PID {PIDS[rank]}",
            -11: f"Signal 11 (SIGSEGV) received by PID {PIDS[rank]}",
            -6: f"Signal 6 (SIGABRT) received by PID {PIDS[rank]}",
        }.get(code, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
        self.say(
            "Traceback (most recent call last):\n"
            '  File "/usr/local/bin/torchrun", line 8, in <module>\n'
            "    sys.exit(main())\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
            "============================================================\n"
            "train.py FAILED\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "  <NO_OTHER_FAILURES>\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            f"  time      : {stamp(self.now).replace(' ', '_')[:19]}\n"
            f"  host      : {node_of(rank)}\n"
            f"  rank      : {rank} (local_rank: {rank % 4})\n"
            f"  exitcode  : {code} (pid: {PIDS[rank]})\n"
            "  error_file: <N/A>\n"
            f"  traceback : {message}\n"
            "============================================================"
        )

    def peers_lose(self, rank: int) -> None:
        """The connections of the other ranks break."""
        for other in range(RANKS):
            if other != rank:
                self.say(
                    f"{node_of(other)}:{PIDS[other]}:{PIDS[other] + 9} [{other % 4}] NCCL WARN "
                    f"socketProgress: Connection closed by remote peer {node_of(rank)}<5{rank}001>",
                    other,
                )

    def watchdogs(
        self, seq: int, ranks: list[int], enqueued: int | None = None, minutes: int = 10
    ) -> None:
        """NCCL watchdogs of ``ranks`` time out in collective ``seq``."""
        self.now += minutes * 60
        last = seq + 1 if enqueued is None else enqueued
        for rank in ranks:
            front = f"[rank{rank}]:[E{glog(self.now)} ProcessGroupNCCL.cpp"
            self.say(
                f"{front}:632] [Rank {rank}] Watchdog caught collective operation timeout: "
                f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, "
                f"Timeout(ms)={minutes * 60000}) ran for {minutes * 60000 + rank} milliseconds "
                "before timing out."
            )
            self.say(
                f"{front}:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by "
                f"watchdog at work sequence id: {seq} PG status: last enqueued work: {last}, last "
                f"completed work: {seq - 1}"
            )

    def text(self, prefix: Callable[[Line], str] = lambda line: "") -> str:
        return "".join(f"{prefix(line)}{line.text}\n" for line in self.lines if not line.file)


def node_of(rank: int) -> str:
    return NODES[rank // 4]


def kernel(when: float) -> str:
    """As the kernel's log writes a time with ``dmesg -T``."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%a %b %d %H:%M:%S %Y")


def stamp(when: float) -> str:
    moment = datetime.fromtimestamp(when, timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S,") + f"{int(when % 1 * 1000):03d}"


def glog(when: float) -> str:
    moment = datetime.fromtimestamp(when, timezone.utc)
    return moment.strftime("%m%d %H:%M:%S.") + f"{int(when % 1 * 1e6):06d}"


def maxtext(job: Job) -> str:
    r = job.random
    return (
        f"{job.iso()} completed step: {job.step}, seconds: {job.seconds * r.uniform(0.99, 1.01):.3f}, "
        f"TFLOP/s/device: {r.uniform(390, 410):.3f}, Tokens/s/device: {r.uniform(8000, 8100):.3f}, "
        f"total_weights: 1048576, loss: {8 / (1 + job.step / 900) + r.uniform(0, 0.1):.3f}"
    )


def megatron(job: Job) -> str:
    r = job.random
    return (
        f" [{job.iso()[:19]}] iteration {job.step:8d}/   20000 | consumed samples: {job.step * 64:12d} "
        f"| elapsed time per iteration (ms): {job.seconds * 1000 * r.uniform(0.99, 1.01):.1f} | "
        f"learning rate: 1.5E-04 | global batch size:    64 | lm loss: {8 / (1 + job.step / 900):.6E} "
        "| loss scale: 1.0 | grad norm: 0.752 | number of skipped iterations:   0 | number of nan "
        "iterations:   0 |"
    )


def bar(job: Job) -> str:
    percent = job.step * 100 // 20000
    return (
        f"Training: {percent:3d}%|{'#' * (percent // 10):10s}| {job.step}/20000 "
        f"[{int(job.now - START)}<9:59:59, {job.seconds:.2f}s/it, loss={8 / (1 + job.step / 900):.3f}]"
    ).replace(f"[{int(job.now - START)}<", "[1:02:03<")


CHATTER: tuple[Callable[[Job], str], ...] = (
    lambda j: (
        f"{j.iso()} INFO data: loaded shard {j.random.randrange(9999):05d} in 0.{j.random.randrange(99):02d} s, error_rate=0.0"
    ),
    lambda j: f"{j.iso()} INFO gc: collected {j.random.randrange(9000)} objects, memory 71.2 GiB",
    lambda j: (
        f"[{j.iso()} E 900 950] core_worker.cc:800: Failed to establish connection to the metrics exporter agent. Metrics will not be exported."
    ),
    lambda j: f"{j.iso()} WARNING s3fs: read timed out, retrying in 2.0 s (attempt 1/5)",
    lambda j: f"{j.iso()} INFO dispatcher: timeout_s=600 heartbeat_interval=10 retries=0 errors=0",
    lambda j: (
        f"wandb: WARNING Serializing object of type list that is {j.random.randrange(99999)} bytes"
    ),
    lambda j: (
        "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
    ),
    lambda j: f"{j.iso()} INFO sampler: epoch 3, batch {j.step}, pad_token_id=0, max_tokens: 4096",
    lambda j: (
        f"{node_of(1)}:{PIDS[1]}:{PIDS[1]} [1] NCCL WARN NET/OFI Unable to find a protocol that worked, missing iommu"
    ),
)
