"""What the configuration says of collectors."""

from __future__ import annotations

import pytest

from tests.support.collecting import CollectingNode, still_good

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("good_one_beside_it")]


def test_an_unknown_option_is_told(node: CollectingNode) -> None:
    node.configure("good", intervall=3)
    node.start()
    status = node.until("good", lambda status: status.state == "quarantined")
    assert "[collectors.good]: unknown key intervall" in status.message


def test_a_table_for_nobody_and_a_bad_one_are_told(node: CollectingNode) -> None:
    node.configure("goood", interval=3)
    node.configure("bad", interval="often")
    node.write("bad.py", "class B(Collector):\n    name = 'bad'\n    def collect(self): ...\n")
    node.start()
    status = node.until("[collectors.goood]", lambda status: True)
    assert "there is no such collector" in status.message
    assert "interval" in node.until("bad", lambda status: True).message
    still_good(node)


def test_disabled_is_not_run(node: CollectingNode) -> None:
    node.write("off.py", "class B(Collector):\n    name = 'off'\n    def collect(self): ...\n")
    node.configure("off", enabled=False)
    node.start()
    still_good(node)
    assert node.status("off") is None
