"""Sends one notice by Apprise, in a process of its own: whatever a plugin does or waits for ends
with the deadline of ``notifier``.

The address, which holds secrets, comes on standard input, as no other user can read it. What
Apprise prints may hold them too and is not passed on.
"""

from __future__ import annotations

import logging
import sys

import msgspec

UNKNOWN, NOT_SENT = 3, 4
"""Exit statuses: no service of Apprise's has such an address; the service did not take it."""
_KINDS = {"success": "success", "resolved": "success", "failed": "failure", "hang": "failure"}


class AppriseNotice(msgspec.Struct, frozen=True):
    """What standard input gives, as JSON."""

    url: str
    event: str
    title: str
    text: str


def main() -> int:
    """The exit status: 0 where it was sent."""
    import apprise

    logging.disable()
    notice = msgspec.json.decode(sys.stdin.buffer.read(), type=AppriseNotice)
    sender = apprise.Apprise()
    if not sender.add(notice.url):
        return UNKNOWN
    sent = sender.notify(
        title=notice.title,
        body=notice.text,
        notify_type=_KINDS.get(notice.event, "warning"),
        body_format=apprise.NotifyFormat.TEXT,
    )
    return 0 if sent else NOT_SENT


if __name__ == "__main__":
    sys.exit(main())
