"""cuda-gdb: the table of ``info cuda kernels`` and the host threads' backtraces.

The table's columns (CUDA-GDB manual, "info cuda kernels")::

      Kernel Parent Dev Grid Status   SMs Mask   GridDim  BlockDim Invocation
    *      0      -   0    2 Active 0x00ffffff (240,1,1) (128,1,1) acos_main(parms=...)

Other layouts name a kernel as ``Kernel 0: NAME on device 0``; both are read. The table of
``info cuda threads`` names no kernel, but the source files that its threads are in: a library's own
sources show whose kernel it is.
"""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.readers import gdb
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import GpuKernel, StackTrace

_ROW = re.compile(
    r"^\s{0,20}\*?\s{0,20}(?P<kernel>\d+)\s+(?P<parent>\d+|-)\s+(?P<device>\d+)\s+(?P<grid_id>-?\d+)\s+"
    r"(?P<status>[A-Za-z]\w*)\s+(?P<sm>0x[0-9a-fA-F]+|\S+)\s+(?P<grid>\([\d, ]+\))\s+"
    r"(?P<block>\([\d, ]+\))\s+(?P<name>\S.*)$"
)
_SENTENCE = re.compile(
    r"^\s{0,20}\*?\s{0,20}Kernel\s+(?P<kernel>\d+)\s*:\s*(?P<name>\S.*?)"
    r"(?:\s+on device\s+(?P<device>\d+)(?P<rest>.*))?$",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"\b(grid(?:dim)?|block(?:dim)?|sms?(?: mask)?)\b[ =:]*(\([\d, ]+\)|0x[0-9a-fA-F]+|\d+)",
    re.IGNORECASE,
)
_THREADS = re.compile(
    r"^\s{0,20}\*?\s{0,20}(?:\(\d+, ?\d+, ?\d+\)\s+){4}\d+\s+0x[0-9a-fA-F]+\s+"
    r"\S*(?P<library>nccl|rccl)[^/\s]*/(?:\S+/)?device/(?P<file>[\w.]+)\s+\d+\s*$"
)
_HEADER = re.compile(r"\bKernel\s+Parent\s+Dev\b|info cuda kernels", re.IGNORECASE)
_NONE = re.compile(r"No CUDA kernels", re.IGNORECASE)

_SIGNS = re.compile(
    r"\bKernel\s+Parent\s+Dev\b|[Ii]nfo cuda kernels|No CUDA kernels|cuda-gdb|# CUDA Kernel"
    r"|^[ \t]{0,20}\*?[ \t]{0,20}\d+[ \t]+(?:\d+|-)[ \t]+\d+[ \t]+-?\d+[ \t]+[A-Za-z]\w*[ \t]+"
    r"0x[0-9a-f]+[ \t]+\(",
    re.MULTILINE,
)


def looks_like(text: str) -> bool:
    """Whether ``text`` contains what only cuda-gdb prints."""
    # The table's words, or a row of it: grid and block are side by side in parentheses.
    if not any(sign in text for sign in ("CUDA", "cuda", "Kernel", ") (")):
        return False
    return bool(_SIGNS.search(text))


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """The host threads and the device's kernels as one trace."""
    (host,) = gdb.parse(text, process, at)
    kernels, listed = read_kernels(text)
    error = host.error
    if not host.threads and not listed:
        error = explain_output("cuda-gdb", text)
    elif not host.threads and error:
        error = "cuda-gdb listed the kernels, but no host stacks can be read"
    return (
        msgspec.structs.replace(
            host,
            tool="cuda-gdb",
            kernels=kernels,
            kernels_listed=listed,
            error=error.replace("gdb:", "cuda-gdb:", 1) if error.startswith("gdb:") else error,
        ),
    )


def read_kernels(text: str) -> tuple[tuple[GpuKernel, ...], bool]:
    """The kernels on the device, and whether the tool was able to list them at all."""
    found: list[GpuKernel] = []
    within: list[GpuKernel] = []
    header = none = False
    for line in tx.lines(text):
        header = header or bool(_HEADER.search(line))
        none = none or bool(_NONE.search(line))
        if row := _ROW.match(line):
            found.append(
                GpuKernel(
                    name=kernel_name(row["name"]),
                    device=tx.number(row["device"]),
                    grid=row["grid"],
                    block=row["block"],
                    sm=row["sm"],
                )
            )
        elif sentence := _SENTENCE.match(line):
            found.append(_from_sentence(sentence))
        elif thread := _THREADS.match(line):
            within.append(GpuKernel(name=f"a kernel of {thread['library']} ({thread['file']})"))
    if not found:
        found = within[:1]
    unique = tuple(dict.fromkeys(found))
    return unique, bool(unique) or none


def _from_sentence(match: re.Match[str]) -> GpuKernel:
    fields = {key.lower()[:2]: value for key, value in _FIELD.findall(match["rest"] or "")}
    return GpuKernel(
        name=kernel_name(match["name"]),
        device=tx.number(match["device"]) if match["device"] else None,
        grid=fields.get("gr", ""),
        block=fields.get("bl", ""),
        sm=fields.get("sm", ""),
    )


def kernel_name(invocation: str) -> str:
    """The kernel's name without the launch arguments: ``foo<int>(p=0x7f, n=3)`` → ``foo<int>``."""
    depth = 0
    for index, char in enumerate(invocation):
        depth += (char == "<") - (char == ">" and invocation[index - 1] != "-")
        if char == "(" and depth <= 0 and index and not invocation.startswith("(anonymous", index):
            return invocation[:index].rstrip()
    return re.sub(r"\s+(\w+=|parms=).*$", "", invocation).rstrip()
