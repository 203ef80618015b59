"""What launchers and collectors of logs put before each line that a process writes.

A dump that was written to the log comes out of it with the rank (torchrun, srun, mpirun), the
worker (Ray), the container (``docker compose logs``), the time (CRI, ``docker logs -t``, syslog)
or a mail's ``> `` before each line. All are taken off, and the indentation is kept.
"""

from __future__ import annotations

import re

_ONE = (
    r"\[(?:rank)?\d+\]:? ?",
    r"\[\d+,\d+\]<std(?:out|err)>: ?",
    r"\([^()\n]{1,200} pid=\d+[^()\n]{0,100}\) ?",
    r"\d{1,6}: ?",
    r"[\w./-]{1,80} {1,60}\| ?",
    r"\[[^\[\]\n]{10,40}\] [\w-]{1,40} \[rank=\d+\] \|\| ",
    r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?",
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w./-]{1,40}(?:\[\d+\])?: ",
    r"> ?",
)
_PREFIX = rf"^(?:{'|'.join(_ONE)}){{1,3}}"
# What begins a stack: only where it stands behind a prefix are prefixes taken off.
_SIGN = (
    r"(?=[ \t]{0,8}(?:Process \d+: |(?:Current )?[Tt]hread |File \"[^\"\n]+\", line \d|#0 +0x"
    r"|\[<[0-9a-f]+>\] |(?:\? )?[A-Za-z_][\w.]*\+0x[0-9a-f]+/0x))"
)
_PREFIXED = re.compile(_PREFIX + _SIGN, re.MULTILINE)
_LINE = re.compile(_PREFIX, re.MULTILINE)
_LOOKED_AT = 200_000


def without_prefixes(text: str) -> str:
    """``text`` without what stands before its lines; unchanged where no stack stands behind one.

    >>> without_prefixes('w-1  | Thread 7 (idle): "MainThread"\\nw-1  |     f (a.py:1)')
    'Thread 7 (idle): "MainThread"\\n    f (a.py:1)'
    """
    if not _PREFIXED.search(text, 0, _LOOKED_AT):
        return text
    return _LINE.sub("", text)
