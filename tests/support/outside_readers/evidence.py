"""Readers of stacks, of NCCL RAS and of flight recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_sentinel.evidence.flight_recorder import dump, reduced
from ray_sentinel.evidence.nccl_ras import version
from ray_sentinel.evidence.stacks import classify, same
from ray_sentinel.evidence.stacks.frames import names
from ray_sentinel.evidence.stacks.frames.blocks import PythonSource
from ray_sentinel.evidence.stacks.readers import (
    cuda_gdb,
    faulthandler,
    formats,
    gdb,
    kernel,
    parts,
    problems,
    pyspy,
    pyspy_json,
    pystack,
    sources,
)
from ray_sentinel.waitgraph.ras import explain as explain_ras
from ray_sentinel.waitgraph.recorder import explain as explain_recorders
from tests.support.outside_readers.reader import PROCESS, Reader, of_lines, of_text
from tests.support.outside_readers.samples import reduced_dumps
from tests.support.outside_readers.words import (
    CUDA_WORDS,
    FAULT_WORDS,
    GDB_WORDS,
    JSON_WORDS,
    KERNEL_WORDS,
    PYSPY_WORDS,
    PYSTACK_WORDS,
    RAS_WORDS,
    RECORDER_WORDS,
    STACK_WORDS,
)


def _stacks(parse: Callable[..., Any]) -> Callable[[bytes], object]:
    return of_text(lambda text: [classify(trace) for trace in parse(text, PROCESS, 0.0)])


def _reduced(data: bytes) -> object:
    small = reduced.without_operations(reduced.reduce(data))
    return (
        reduced.read(0, small),
        reduced.history(data),
        list(reduced.operations(data)),
        reduced.weight(small, 1 << 20),
    )


EVIDENCE = (
    Reader(
        name="stacks: any",
        fixtures=("stacks/single/*.txt", "stacks/gloo_ddp/*/*"),
        read=lambda data: [classify(t) for t in formats.parse(data, PROCESS)],
        words=STACK_WORDS,
    ),
    Reader(
        name="stacks: py-spy",
        read=_stacks(pyspy.parse),
        words=PYSPY_WORDS,
        fixtures=("stacks/single/pyspy_*.txt",),
    ),
    Reader(
        name="stacks: py-spy JSON",
        read=_stacks(pyspy_json.parse),
        front=b'[{"frames": [',
        words=(b'{"name": "f", "filename": "a.py", "line": 1},', b'],"pid": 7},{"frames": ['),
        fixtures=("stacks/single/*.json",),
    ),
    Reader(
        name="stacks: gdb",
        read=_stacks(gdb.parse),
        words=GDB_WORDS,
        fixtures=("stacks/single/gdb_*", "stacks/nccl_gdb.txt"),
    ),
    Reader(
        name="stacks: cuda-gdb",
        read=_stacks(cuda_gdb.parse),
        words=(*CUDA_WORDS, *GDB_WORDS[:2]),
        fixtures=("stacks/cuda_kernels.txt",),
    ),
    Reader(
        name="stacks: kernel",
        read=_stacks(kernel.parse),
        words=KERNEL_WORDS,
        fixtures=("stacks/single/kernel_*",),
    ),
    Reader(
        name="stacks: faulthandler",
        read=_stacks(faulthandler.parse),
        words=FAULT_WORDS,
        fixtures=("stacks/single/faulthandler.txt",),
    ),
    Reader(name="stacks: pystack", read=_stacks(pystack.parse), words=PYSTACK_WORDS),
    Reader(
        name="stacks: parts",
        fixtures=("stacks/gloo_ddp/*/*",),
        read=of_text(
            lambda text: parts.parts(text, lambda part: formats.recognise(part) is not None)
        ),
        words=STACK_WORDS,
    ),
    Reader(
        name="stacks: names",
        fixtures=("stacks/single/gdb_*",),
        read=of_lines(
            lambda line: (names.plain(line), names.last_name(line), names.is_address(line))
        ),
        words=GDB_WORDS[2:],
    ),
    Reader(
        name="stacks: unfold",
        fixtures=("stacks/gloo_plain/*/*",),
        read=of_text(lambda text: (same.refers_to(text), same.unfold(text, text))),
        words=PYSPY_WORDS,
    ),
    Reader(
        name="stacks: fold", read=lambda data: same.fold({"a": data, "b": data}), words=PYSPY_WORDS
    ),
    Reader(
        name="stacks: ranks in a text",
        read=of_text(
            lambda text: (
                sources.rank_in_text(text),
                sources.place_in_title(text),
                sources.local_rank(text),
                sources.from_path(text),
            )
        ),
        words=(b"rank 3 of 8", b"RANK=3", b"sglang::scheduler_TP0"),
    ),
    Reader(
        name="stacks: a tool's errors",
        read=of_text(
            lambda text: (problems.explain_output("py-spy", text), problems.process_gone(text))
        ),
        words=(b"Error: Operation not permitted (os error 1)", b"ptrace: No such process"),
    ),
    Reader(
        name="stacks: what is no stack",
        read=of_text(lambda text: (kernel.is_log(text), pyspy.without_threads(text))),
        words=(*KERNEL_WORDS[1:3], *PYSPY_WORDS[2:4]),
    ),
    Reader(
        name="stacks: titles of ranks",
        read=of_text(lambda text: sources.ranks_of_titles(text.split("\n"))),
        words=(b"python train.py --local_rank=3", b"sglang::scheduler_TP0"),
    ),
    Reader(
        name="stacks: program text",
        read=PythonSource,
        errors=(ValueError,),
        words=(b"def f():\n  for x in y:\n    pass", b"-", b"x.", b"a=", b"if 1:"),
        memory=1500.0,
        seconds=8.0,
    ),
    Reader(
        name="NCCL RAS: a version",
        read=of_text(lambda text: version.gate(text)),
        words=(b"2.27.3+cuda12.9",),
        most=4096,
    ),
    Reader(
        name="NCCL RAS",
        read=lambda data: explain_ras({"a": data}),
        words=RAS_WORDS,
        fixtures=("nccl_ras/*.txt",),
    ),
    Reader(
        name="NCCL RAS JSON",
        read=lambda data: explain_ras({"a": data}),
        front=b'{"a": ',
        words=JSON_WORDS,
        fixtures=("nccl_ras/*.json",),
    ),
    Reader(
        name="NCCL RAS: a section",
        read=lambda data: explain_ras({"a": data}),
        front=b"NCCL version 2.28.9 x\n#1-1 (ab12) DEAD\n",
        words=RAS_WORDS[3:10],
    ),
    Reader(
        name="flight recorder",
        read=lambda data: dump.read(0, data),
        front=b'{"version": "2.10", "entries": [',
        words=RECORDER_WORDS,
        fixtures=("flight_recorder/gloo_sleeper/*.json",),
    ),
    Reader(
        name="flight recorder: pickle",
        read=lambda data: dump.read(0, data),
        front=b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x03\x00\x00\x002.4q\x02",
        words=(b"]q\x03(", b"(t", b"}q\x04", b"K\x01", b"(d0", b"X\x01\x00\x00\x00a", b"2"),
        most=256 << 10,
        memory=300.0,
    ),
    Reader(
        name="flight recorder: explained",
        read=lambda data: explain_recorders({0: data, 1: data}),
        front=b'{"version": "2.10", "entries": [',
        words=RECORDER_WORDS,
        fixtures=("flight_recorder/gloo_sleeper/*.json",),
        most=256 << 10,
    ),
    Reader(
        name="flight recorder: on its way",
        read=_reduced,
        front=b'{"version": "2.10", "entries": [',
        words=RECORDER_WORDS,
        fixtures=("flight_recorder/gloo_sleeper/*.json",),
        most=32 << 10,
    ),
    Reader(
        name="flight recorder: reduced",
        made=reduced_dumps,
        read=lambda data: (
            reduced.weight(data, 1 << 20),
            reduced.read(0, data),
            reduced.history(data),
        ),
        front=reduced.MARK,
        words=(b"\x93", b"\xc4\x04abcd"),
    ),
)
