"""Lines of the kernel log that report trouble, from ``/dev/kmsg``, ``dmesg`` or the journal."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator

from ray_sentinel import process
from ray_sentinel.errors import MissingPartError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.masking import mask
from ray_sentinel.model.health import KernelLine
from ray_sentinel.text import one_line

_DEADLINE = 5.0
"""Seconds that ``dmesg`` or the journal may take."""
DEVICE = "/dev/kmsg"
_RECORD = 8192
"""Bytes of the buffer for one record; the kernel's records are shorter."""
_MOST_RECORDS = 100_000
"""Most records that are read in one go: a driver may write faster than we read."""
_ERROR = 3
"""Highest syslog priority that is an error (``man 3 syslog``)."""


def kernel_lines(catalogue: Catalogue, count: int) -> tuple[tuple[KernelLine, ...], str]:
    """Read the kernel log for lines that report trouble.

    Returns the last ``count`` of them, oldest first, and why the log could not be read ("" if it
    could).
    """
    try:
        return tuple(_judged(_from_device(), catalogue))[-count:], ""
    except OSError as error:
        why = f"{DEVICE} cannot be read ({error.strerror})"
    for argv in (["dmesg", "--raw"], ["journalctl", "-k", "-o", "short-unix", "-n", "2000"]):
        if shutil.which(argv[0]) is None:
            continue
        try:
            done = process.run(argv, deadline=_DEADLINE)
        except MissingPartError:
            continue  # removed between the two looks
        if done.ok:
            text = done.stdout.decode("utf-8", "replace")
            lines = ((None, 6, line) for line in text.splitlines())
            return tuple(_judged(lines, catalogue))[-count:], ""
        why = f"{why}; {done.explain()}"
    return (), f"the kernel log: {why}: run as root, or give CAP_SYSLOG"


def _from_device() -> Iterator[tuple[float | None, int, str]]:
    """(Unix time, priority, text) of every record.

    A record is ``priority,sequence,microseconds since boot,flags;text`` and continuation lines
    (``Documentation/ABI/testing/dev-kmsg``).
    """
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(_MOST_RECORDS):
            try:
                data = os.read(descriptor, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # records were overwritten while we read: go on with what is left
            if not data:
                return
            head, _, text = data.decode("utf-8", "replace").partition(";")
            fields = head.split(",")
            if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()):
                continue
            yield boot + int(fields[2]) / 1e6, int(fields[0]) & 7, text.split("\n")[0]
    finally:
        os.close(descriptor)


def _judged(
    records: Iterable[tuple[float | None, int, str]], catalogue: Catalogue
) -> Iterator[KernelLine]:
    for when, priority, text in records:
        found = catalogue.search(text, "kernel")
        known = found is not None and found.signature.role not in ("harmless", "note")
        if known or priority <= _ERROR:
            yield KernelLine(
                text=mask(one_line(text, 400)),
                kind=found.signature.kind if known and found is not None else "",
                time=when,
            )
