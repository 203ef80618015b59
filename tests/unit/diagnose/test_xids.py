"""The diagnosis says of an Xid what the alerts say of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.alerts_and_dashboards import alerts
from tests.support.plain_job import BEGIN, Phase, watched

RULES = {rule.name: rule.expr for rule in alerts()}
CRITICAL = RULES["GpuXidCritical"].partition('xid=~"')[2].partition('"')[0]
INFO = RULES["GpuXidApplication"].partition('xid=~"')[2].partition('"')[0]
TRAIN = Phase(3600)
STOPPED = Phase(1800, steps=False, watts=150, spread=3, util=99)


def diagnosed(xid: str, *phases: Phase) -> Diagnosis:
    """A job in which one GPU has an Xid 20 seconds before the end of the first phase."""
    source = watched(phases)
    times = BEGIN + np.arange(phases[0].seconds - 20, sum(one.seconds for one in phases), 10.0)
    labels = {"host": "n1", "gpu": "1", "xid": xid}
    source.add("hw_gpu_xid_errors_total", labels, times, np.ones(times.size))
    return examine(source).diagnosis


@pytest.mark.parametrize("xid", ["79", "109", "119", "48", "158"])
def test_what_needs_a_reset_is_a_fault(xid: str) -> None:
    assert re.fullmatch(CRITICAL, xid)
    found = diagnosed(xid, TRAIN, TRAIN)
    assert (found.cause, [(one.host, one.gpu) for one in found.culprits]) == ("xid", [("n1", "1")])


@pytest.mark.parametrize("xid", ["13", "43", "106", "107", "121", "137", "162", "163"])
def test_what_the_program_did_or_the_driver_dealt_with_is_none(xid: str) -> None:
    assert re.fullmatch(INFO, xid)
    assert diagnosed(xid, TRAIN, TRAIN).outcome == "healthy"


def test_a_number_of_no_class_counts_if_the_job_stopped_after_it() -> None:
    assert not re.fullmatch(f"{CRITICAL}|{INFO}", "199")
    assert diagnosed("199", TRAIN, TRAIN).outcome == "healthy"
    assert diagnosed("199", TRAIN, STOPPED).cause == "xid"
