"""Notifications in the formats that their receivers expect. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

Style = Literal["auto", "json", "slack"]

_SIGNS = {
    "hang": ":rotating_light:",
    "bad-node": ":no_entry:",
    "restart": ":arrows_counterclockwise:",
    "failed": ":x:",
    "success": ":white_check_mark:",
    "stopped": ":octagonal_sign:",
    "resolved": ":white_check_mark:",
}
_SLACK_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")
_MOST_TEXT = 3000
"""Most characters of a text block in Slack (Block Kit, section); the rest is cut off."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One event to notify about."""

    key: str
    """Identifies what must be sent only once, such as an incident's id and state."""
    event: str
    """What happened: "suspected", "confirmed", ..., "resolved" of an incident; "hang", "bad-node",
    "restart", "failed", "success", "stopped" of a supervised run."""
    job: str
    text: str
    """The event in one sentence."""
    time: float
    host: str = ""
    details: dict[str, Any] = {}
    """The incident in the form of ``incidents --json``; empty for other events."""


def body(notice: Notice, style: Style, url: str) -> bytes:
    """The request's body, which is JSON for every receiver."""
    if style == "slack" or (style == "auto" and is_slack(url)):
        return json.dumps(_slack(notice)).encode()
    return msgspec.json.encode(notice)


def is_slack(url: str) -> bool:
    """Whether an address is one of Slack's incoming webhooks."""
    return (urlsplit(url).hostname or "") in _SLACK_HOSTS


def _slack(notice: Notice) -> Mapping[str, Any]:
    """``text`` alone is all that an incoming webhook needs (Slack, "Incoming webhooks")."""
    sign = _SIGNS.get(notice.event, ":warning:")
    job = f"*{_escaped(notice.job)}* " if notice.job else ""
    where = f" ({_escaped(notice.host)})" if notice.host else ""
    text = f"{sign} {job}{notice.event}: {_escaped(notice.text)}{where}"
    return {"text": text[:_MOST_TEXT]}


def _escaped(text: str) -> str:
    """The three characters that mean something in Slack's messages."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def variables(notice: Notice) -> dict[str, str]:
    """The environment variables of a notification command; the whole notice is on its stdin."""
    return {
        "SENTINEL_EVENT": notice.event,
        "SENTINEL_JOB": notice.job,
        "SENTINEL_TEXT": notice.text.replace("\0", ""),
        "SENTINEL_KEY": notice.key,
    }
