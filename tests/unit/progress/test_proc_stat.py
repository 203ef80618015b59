"""Parsing of /proc/PID/stat and schedstat."""

import pytest

from ray_sentinel.progress.proc.proc_stat import TICK, parse_schedstat, parse_stat

# As Linux 6.18 writes it.
LINE = (
    b"6215 (bash) S 6214 6215 3078 0 -1 4194368 303 629 0 0 7 5 0 0 20 0 3 0 113454 4739072 460 "
    b"18446744073709551615 94085653880832 94085654670237 140735651417264 0 0 0 65536 0 81922 1 0 0 "
    b"17 0 0 0 0 0 0 94085654903536 94085654951780 94085898878976 140735651425148 140735651425163 "
    b"140735651425163 140735651426282 2304\n"
)


def test_a_real_line():
    stat = parse_stat(LINE)
    assert (stat.pid, stat.command, stat.state, stat.parent) == (6215, "bash", "S", 6214)
    assert stat.cpu_seconds == pytest.approx(12 * TICK)
    assert (stat.threads, stat.start, stat.wait_status) == (3, 113454, 2304)
    assert stat.rss_bytes > 0


@pytest.mark.parametrize("name", [b"a b", b"a) R 1 (b", b")", b"(", b"\xff\n"])
def test_the_command_may_hold_anything(name):
    stat = parse_stat(LINE.replace(b"bash", name))
    assert (stat.state, stat.start) == ("S", 113454)


@pytest.mark.parametrize("data", [b"", b"1 (x", b"1 (x) S 1", b"x" * 100, LINE[:60]])
def test_what_is_no_such_line(data):
    with pytest.raises(ValueError):
        parse_stat(data)


def test_schedstat():
    sched = parse_schedstat(b"995580 2000000 3\n")
    assert sched == (0.00099558, 0.002, 3)
    with pytest.raises(ValueError):
        parse_schedstat(b"1\n")
