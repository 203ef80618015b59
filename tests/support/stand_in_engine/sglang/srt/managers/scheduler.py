"""A tensor-parallel scheduler. argv: rank, port to meet at, socket of rank 0's requests, "rests" or
"polls" (what rank 0 does without requests)."""

from __future__ import annotations

import json
import select
import socket
import sys

import torch
import torch.distributed as dist

from sglang.srt.models.toy import forward
from sglang.titles import set_title


class Scheduler:
    def __init__(self, rank: int, path: str, rests: bool) -> None:
        self.rank, self.rests = rank, rests
        self.socket: socket.socket | None = None
        if rank == 0:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.connect(path)

    def recv_requests(self) -> list[int]:
        """[tokens, stuck rank], or nothing; the same on all ranks."""
        found = [0, -1]
        if self.socket is not None and select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(1000)
            if not data:
                sys.exit(0)
            found = json.loads(data)
        told = torch.tensor(found)
        dist.broadcast(told, src=0)
        return [int(number) for number in told] if told[0] else []

    def run_batch(self, request: list[int]) -> None:
        tokens, stuck = request
        for _ in range(tokens):
            forward(self.rank, stuck)
        if self.socket is not None:
            self.socket.send(b"done")

    def maybe_sleep(self) -> None:
        if self.socket is not None and self.rests:
            select.select([self.socket], [], [], 1.0)

    def event_loop_normal(self) -> None:
        while True:
            if request := self.recv_requests():
                self.run_batch(request)
            else:
                self.maybe_sleep()


def main() -> None:
    rank, port, path, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    set_title(f"sglang::scheduler_TP{rank}")
    torch.set_num_threads(1)
    meet = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    Scheduler(rank, path, mode == "rests").event_loop_normal()


if __name__ == "__main__":
    main()
