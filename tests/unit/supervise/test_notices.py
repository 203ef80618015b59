"""What is told, and that each state of an incident is told once."""

from __future__ import annotations

import json

import pytest

from ray_sentinel.config import NotifyConfig
from ray_sentinel.errors import UsageError
from ray_sentinel.model.incident import Culprit, Incident, Transition, Verdict
from ray_sentinel.supervise.notify.incident_notices import key_of, keys_of_past, notice_of
from ray_sentinel.supervise.notify.notices import Notice, body, is_slack, variables
from ray_sentinel.supervise.notify.notifier import (
    APPRISE_SECONDS,
    DELAYS,
    PATIENCE_SECONDS,
    SECONDS,
    check,
)
from tests.support.incidents import an_incident

NOTICE = Notice(key="k", event="hang", job="a<b", text="rank 3 & rank 4 <!channel>", time=1.0)
SLACK = "https://hooks.slack.com/services/T0/B0/secret"


def test_slack_takes_a_text_that_cannot_call_everybody() -> None:
    told = json.loads(body(NOTICE, "auto", SLACK))
    assert list(told) == ["text"]
    assert "<!channel>" not in told["text"]
    assert "&lt;!channel&gt;" in told["text"]
    assert "rank 3 &amp; rank 4" in told["text"]


def test_others_take_the_whole_notice() -> None:
    told = json.loads(body(NOTICE, "auto", "https://example.org/hook"))
    assert (told["event"], told["job"], told["text"]) == ("hang", "a<b", NOTICE.text)
    assert "text" in json.loads(body(NOTICE, "slack", "https://example.org/hook"))
    assert not is_slack("https://hooks.slack.com.evil.org/x")
    assert variables(NOTICE)["SENTINEL_EVENT"] == "hang"


def incident(state: str) -> Incident:
    verdict = Verdict(
        kind="gil-held",
        summary="rank 3 holds the GIL",
        culprits=(Culprit(rank=3, host="node-2", pid=7, reason="GIL"),),
    )
    return an_incident(
        job="job",
        state=state,
        summary="suspected",
        verdict=verdict,
        history=(Transition(5.0, "suspected"), Transition(6.0, "confirmed")),
    )


def test_an_incident_s_states_are_different_notices_and_the_same_state_is_the_same() -> None:
    first, second = notice_of(incident("confirmed"), {}), notice_of(incident("resolved"), {})
    assert first.key != second.key
    assert first.key == notice_of(incident("confirmed"), {"more": 1}).key
    assert (first.text, first.host, first.time) == ("rank 3 holds the GIL", "node-2", 6.0)


def test_what_an_earlier_life_told_is_known() -> None:
    assert key_of(incident("confirmed")) in keys_of_past(incident("explained"))
    assert key_of(incident("resolved")) not in keys_of_past(incident("explained"))


@pytest.mark.parametrize(
    "section",
    [NotifyConfig(webhook="hooks.example.org"), NotifyConfig(webhook="ftp://x/y"),
     NotifyConfig(command="'"), NotifyConfig(command=" "), NotifyConfig(style="teams")],
)  # fmt: skip
def test_settings_that_can_never_work(section: NotifyConfig) -> None:
    with pytest.raises(UsageError):
        check(section)


@pytest.mark.parametrize("attempt", [SECONDS, APPRISE_SECONDS])
def test_a_notice_is_not_given_up_while_its_slowest_receiver_has_attempts_left(
    attempt: float,
) -> None:
    assert sum(DELAYS) + (1 + len(DELAYS)) * attempt <= PATIENCE_SECONDS
