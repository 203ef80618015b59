"""Translates a tool's error message into what is wrong and what helps."""

from __future__ import annotations

from ray_sentinel import regex as re

_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"command not found|not installed|No such file or directory: '?py-spy|not on PATH",
        "the tool is not installed there: install py-spy with pip, cuda-gdb with the CUDA toolkit",
    ),
    (
        r"no such process|process \d+ (?:not found|does not exist)|No process with pid"
        r"|Failed to get process executable name|ESRCH",
        "the process was gone when the tool came",
    ),
    (
        r"permission denied|operation not permitted|EPERM|ptrace: .*not permitted|elevated",
        "ptrace was refused: the tool needs CAP_SYS_PTRACE (in a container: "
        "--cap-add=SYS_PTRACE), the same user, or kernel.yama.ptrace_scope=0",
    ),
    (
        r"failed or timed out|timed out|timeout expired|was ended after",
        "the tool did not finish in time: the process may be in D state, see its kernel stack",
    ),
    (
        r"Failed to find python version|Failed to find a python interpreter|not a python",
        "the process runs no Python that py-spy knows: use gdb, or a newer py-spy",
    ),
    (
        r"Failed to suspend process|Failed to get stack traces",
        "py-spy could not read the stacks: a stopped process needs --nonblocking",
    ),
    (
        r"No such file|cannot open",
        "the tool did not find a file that it needs",
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), text) for pattern, text in _KNOWN)


def known_problem(output: str) -> str:
    """What a tool's error message means and what helps; empty for an unknown one."""
    head = output[:20_000]
    return next((text for pattern, text in _PATTERNS if pattern.search(head)), "")


def explain_output(tool: str, output: str) -> str:
    """Why ``output`` contains no stacks: a known error message, or its own first words."""
    if not output.strip():
        return f"{tool} wrote nothing"
    said = next((line.strip() for line in output[:20_000].splitlines() if line.strip()), "")
    if meaning := known_problem(output):
        return f"{tool}: {meaning} (it said: {said[:200]})"
    return f"{tool}: no stack can be read in its output, which begins: {said[:200]}"


def process_gone(error: str) -> bool:
    """Whether an error of ours says that the process had ended."""
    return "the process was gone" in error
