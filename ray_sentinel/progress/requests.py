"""Requests to a rank's companion thread: two words in the record.

The reader writes the request word: a serial number in the upper 56 bits, a set of request flags in
the lower 8. The companion carries out the requests, leaves the results as files beside the record
(``answer_name``), each visible as a whole or not at all, and copies the word to the answer word.
"""

from __future__ import annotations

from enum import IntFlag

from ray_sentinel.progress.directory import SUFFIX


class ProgressRequest(IntFlag):
    """What can be requested, alone or together."""

    FLIGHT_RECORDER = 1
    STACKS = 2
    WATCHDOG_ON = 4
    WATCHDOG_OFF = 8


STACKS_ANSWER = "stacks.json"
"""The file with all Python threads, in the form of ``py-spy dump --json``."""
RECORDER_JSON_ANSWER = "flight_recorder.json"
RECORDER_PICKLE_ANSWER = "flight_recorder.pickle"
WATCHDOG_ANSWER = "faulthandler.txt"
"""The file that faulthandler's own thread writes when the interpreter was held for long."""
ERROR_ANSWER = "error.txt"
"""The file that says why an answer is missing, with a line for each request."""

ANSWERS = (
    STACKS_ANSWER,
    RECORDER_JSON_ANSWER,
    RECORDER_PICKLE_ANSWER,
    WATCHDOG_ANSWER,
    ERROR_ANSWER,
)


def pack_request(serial: int, wishes: ProgressRequest) -> int:
    """The request word, which ``unpack_request`` reads."""
    return (serial & ((1 << 56) - 1)) << 8 | int(wishes)


def unpack_request(word: int) -> tuple[int, ProgressRequest]:
    """Serial number and request flags of a word; flags unknown to this version are dropped."""
    return word >> 8, ProgressRequest(word & sum(ProgressRequest))


def answer_name(record: str, answer: str) -> str:
    """The file name of an answer beside the record called ``record``."""
    return f"{record.removesuffix(SUFFIX)}.{answer}"
