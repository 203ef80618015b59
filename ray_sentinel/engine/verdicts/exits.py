"""How a rank ended: normally, by itself, by outside intervention, or because another process had
ended."""

from __future__ import annotations

import itertools

from ray_sentinel import regex as re
from ray_sentinel.model.progress import Exit

SIGHUP, SIGINT, SIGABRT, SIGKILL, SIGTERM = 1, 2, 6, 9, 15
ASKED_TO_END = frozenset({SIGINT, SIGTERM, SIGHUP})
"""Signals by which a launcher, a scheduler or a person ends a job."""

PEER_LOST = re.compile(
    r"connection (was )?(reset|closed|aborted)|broken pipe|(?<![\w/])peers?(?![\w/])"
    r"|DistBackendError|ncclRemoteError"
    r"|ncclSystemError|ncclInternalError|DistNetworkError|DistStoreError|socket (timeout|closed)"
    r"|recvValue failed|heartbeat|aborted due to|coordination service"
    # Not sizeof, nor a file that is cut off: that is the rank's own trouble.
    r"|(?-i:\bEOF(Error)?\b)(?!: (Ran out of input|Compressed file ended|marshal data))",
    re.IGNORECASE,
)
"""What ranks say when another one has gone: echoes, wherever they come first."""

MISMATCH = re.compile(
    r"doesn't match expected size|op\.preamble\.length|collective mismatch|Detected mismatch"
    r"|message truncated|MPI_ERR_TRUNCATE|Mismatched (ranks|data types|sizes)",
    re.IGNORECASE,
)
"""What gloo (``gloo/transport/tcp/pair.cc``, ``torch/csrc/distributed/c10d``) and MPI say when two
ranks are in different collectives, or in the same one with other sizes."""

OVERRUN = re.compile(
    r"op\.preamble\.length <= op\.nbytes|message truncated|MPI_ERR_TRUNCATE", re.IGNORECASE
)
"""Among these, what a rank says that was given more than it had requested. The rank that sent it
does not fail: what comes back to it fits."""

FINAL_LINES = 12
"""Last lines of a rank's output, which may say why it ended."""

_REASON = re.compile(r"\bwhat\(\):|\bUnhandled exception: ")
"""How libstdc++, and Ray's own handler in its workers, show the C++ exception of an abort."""
_CRASH = re.compile(
    r"^(\[[^\]]*\] \S+\.cc:\d+: *)?(\*\*\* SIG|PC: @|@ +0x|Stack trace:)|^ +@ +0x"
    r"|^ */\S+\.so\S*\(|^(Fatal Python error: Aborted|Extension modules:|terminate called without)"
    r"|^(Current thread|Thread) 0x"
)
"""What crash handlers print for any abort: it is no reason."""
_NATIVE = re.compile(rf"{_REASON.pattern}|{_CRASH.pattern}|terminate called")

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(:|$)")
_INTERRUPTED = re.compile(r"(?m)^(KeyboardInterrupt|SystemExit)\b")
_BESIDE = ("Exception ignored in", "Exception in thread")
"""Lines before a traceback that ended nothing: a finalizer's, or another thread's."""

SIGNAL_NAMES = {1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
                9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}  # fmt: skip

KILLED = 3
"""The most violent kind of end; see ``violence``."""


def has_exception(exit_: Exit) -> bool:
    """Whether an exception ended it, and is known."""
    return exit_.last_words is not None and exit_.last_words.kind == "exception"


def is_abnormal(exit_: Exit) -> bool:
    """Whether the end was not normal: a signal, a status other than 0, or no last words at all."""
    if exit_.signal is not None:
        return True
    if exit_.code is not None:
        return exit_.code != 0
    return has_exception(exit_) or (exit_.was_attached and exit_.last_words is None)


def left_by_itself(exit_: Exit) -> bool:
    """Whether it ended normally, or aborted on its way out, as native threads do when the
    interpreter ends while peers still talk to them."""
    said_exit = exit_.last_words is not None and exit_.last_words.kind == "exit"
    return not is_abnormal(exit_) or (exit_.signal == SIGABRT and said_exit)


def violence(exit_: Exit) -> int:
    """How certain it is that the end came from outside. Peers of a dead rank abort or raise, as
    echoes."""
    # An attached rank without last words whose exit status nobody saw was killed.
    unseen = exit_.code is None and exit_.signal is None and exit_.last_words is None
    if exit_.signal == SIGKILL or unseen:
        return KILLED
    return 2 if has_exception(exit_) or exit_.signal not in (None, SIGABRT) else 1


def is_echo(exit_: Exit) -> bool:
    """Whether it ended because a peer had gone, by its own words, or because it was told to."""
    return exit_.signal in ASKED_TO_END or bool(PEER_LOST.search(final_words(exit_)))


def is_mismatch(exit_: Exit) -> bool:
    """Whether it ended because it and a peer were not in the same collective: either of them may be
    wrong."""
    return bool(MISMATCH.search(final_words(exit_)))


def was_overrun(exit_: Exit) -> bool:
    """Whether it received more than it had asked for: its own call or a peer's was wrong."""
    return bool(OVERRUN.search(final_words(exit_)))


def is_unclear(exit_: Exit) -> bool:
    """Whether it ended by a mismatch, or aborted without a message as communication libraries do;
    innocent ranks do so as often as culprits."""
    return is_mismatch(exit_) or (exit_.signal == SIGABRT and not final_words(exit_))


def is_cause(exit_: Exit) -> bool:
    """Whether nothing suggests that another process caused it."""
    return not is_echo(exit_) and not is_unclear(exit_)


def final_words(exit_: Exit) -> str:
    """Its last words: the exception, or else the end of its standard error."""
    if exit_.last_words is not None and has_exception(exit_):
        return exit_.last_words.text
    return closing_lines(exit_.last_output)


def raised_in(output: str) -> str:
    """The exception by which a program ended, found in its last output: its name and message; empty
    if there was none, or if somebody ended the program on purpose."""
    if _INTERRUPTED.search(output):
        return ""  # what falls over it, or fails while it is handled, is its consequence
    told = [
        tail
        for head, tail in itertools.pairwise(output.split(_TRACEBACK))
        if not head.rstrip().rpartition("\n")[2].startswith(_BESIDE)
    ]
    said = closing_lines(_TRACEBACK + told[-1]).partition("\n")[0] if told else ""
    return said if _EXCEPTION.match(said) else ""


def closing_lines(output: str) -> str:
    """The exception, or else the error of native code, in the last output of a program."""
    _, listed, tail = output.rpartition(_TRACEBACK)
    lines = tail.splitlines()
    if listed:
        # The calls that a traceback lists are indented; they say nothing about the reason. What
        # native code writes while such an interpreter ends is a consequence.
        said = itertools.takewhile(lambda line: not _NATIVE.search(line), lines)
        lines = [line for line in said if line[:1].strip()]
    elif native := [at for at, line in enumerate(lines) if _REASON.search(line)]:
        lines = lines[native[0] : native[-1] + 2]
    return "\n".join([line for line in lines if not _CRASH.search(line)][-FINAL_LINES:])


def describe_exit(exit_: Exit) -> str:
    """How it ended, as a phrase."""
    words = exit_.last_words.text.partition("\n")[0][:200] if exit_.last_words else ""
    if exit_.oom_killed:
        return "was killed because memory ran out"
    if exit_.signal is not None:
        return f"was killed by {SIGNAL_NAMES.get(exit_.signal, f'signal {exit_.signal}')}"
    if words and has_exception(exit_):
        return f"ended with {words}"
    if exit_.code is not None:
        return f"exited with status {exit_.code}"
    if exit_.was_attached and exit_.last_words is None:
        return "was killed (it left no last words)"
    return "exited"
