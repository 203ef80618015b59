"""Who may serve a metric."""

from __future__ import annotations

from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.collect.slots import Owners

HOST = CollectorSource(name="host", kind="entry-point", target="a:B", origin="ray-sentinel")
NVML = CollectorSource(name="nvml", kind="entry-point", target="a:C", origin="ray-sentinel")
OTHER = CollectorSource(name="other", kind="entry-point", target="b:D", origin="another-package")
MINE = CollectorSource(name="mine", kind="python", target="/p/mine.py", origin="/p/mine.py")
YOURS = CollectorSource(name="yours", kind="script", target="/p/yours", origin="/p/yours")


def test_the_first_owner_keeps_it() -> None:
    owners = Owners()
    owners.claim(MINE, ["a", "b"])
    owners.claim(YOURS, ["b", "c"])
    assert owners.may_serve("mine", "b")
    assert not owners.may_serve("yours", "b")
    assert owners.may_serve("yours", "c")
    assert owners.owner("b") == "mine"
    owners.claim(MINE, ["a", "b"])
    assert owners.may_serve("mine", "b")


def test_a_name_is_free_again_when_its_owner_no_longer_yields_it() -> None:
    owners = Owners()
    owners.claim(MINE, ["a"])
    owners.claim(MINE, [])
    owners.claim(YOURS, ["a"])
    assert owners.may_serve("yours", "a")
    assert not owners.may_serve("mine", "a")


def test_what_is_installed_goes_before_a_plugin_folder() -> None:
    owners = Owners()
    owners.claim(MINE, ["hw_load1"])
    owners.claim(HOST, ["hw_load1"])
    assert owners.may_serve("host", "hw_load1")
    assert not owners.may_serve("mine", "hw_load1")
    owners.claim(MINE, ["hw_load1"])
    assert not owners.may_serve("mine", "hw_load1")


def test_collectors_of_one_package_share_and_of_two_do_not() -> None:
    owners = Owners()
    owners.claim(HOST, ["hw_gpu_info"])
    owners.claim(NVML, ["hw_gpu_info"])
    owners.claim(OTHER, ["hw_gpu_info"])
    assert owners.may_serve("host", "hw_gpu_info")
    assert owners.may_serve("nvml", "hw_gpu_info")
    assert not owners.may_serve("other", "hw_gpu_info")
    owners.release("host")
    assert owners.may_serve("nvml", "hw_gpu_info")


def test_nobody_serves_what_is_about_the_monitor_itself() -> None:
    owners = Owners()
    owners.claim(HOST, ["ray_sentinel_collector_success", "hw_scrape_duration_seconds"])
    assert not owners.may_serve("host", "ray_sentinel_collector_success")
    assert not owners.may_serve("host", "hw_scrape_duration_seconds")
    assert owners.owner("ray_sentinel_build_info") == "the agent itself"
