"""Sends one notification by Apprise, in a process of its own: whatever a plugin does or waits for
ends with the deadline of ``notifier``.

The address, which contains secrets, comes on standard input, which no other user can read. What
Apprise prints may contain them too and is not passed on.
"""

from __future__ import annotations

import logging
import sys

import msgspec

UNKNOWN, NOT_SENT = 3, 4
"""Exit statuses: no service of Apprise has such an address; the service did not accept the
notice."""
_KINDS = {"success": "success", "resolved": "success", "failed": "failure", "hang": "failure"}


class AppriseNotice(msgspec.Struct, frozen=True):
    """The content of standard input, as JSON."""

    url: str
    event: str
    title: str
    text: str


def main() -> int:
    """Send it. Returns the exit status: 0 if it was sent."""
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
