"""Every reader of text or bytes that somebody else wrote, with what it knows its format by."""

from __future__ import annotations

from tests.support.outside_readers.control_store import CONTROL_STORE
from tests.support.outside_readers.evidence import EVIDENCE
from tests.support.outside_readers.logs import LOGS
from tests.support.outside_readers.reader import FIXTURES, Reader
from tests.support.outside_readers.runtime_env import RUNTIME_ENV
from tests.support.outside_readers.tools import TOOLS

__all__ = ["FIXTURES", "READERS", "Reader"]

READERS: tuple[Reader, ...] = (*LOGS, *EVIDENCE, *TOOLS, *CONTROL_STORE, *RUNTIME_ENV)
