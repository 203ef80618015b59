"""One kill is one finding, however many lines the kernel prints for it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel.evidence.node.judge import Seen, judge
from ray_sentinel.evidence.node.kernel_faults import each_once
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.model.health import KernelLine, NodeView

KMSG = Path(__file__).parents[3] / "fixtures/trees/vm-hybrid-cgroup/dev/kmsg"
# Printed by Linux 6.1 for two containers whose limits were reached, one after the other.
TWO_KILLS = """\
55698.713640 python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
55698.714178 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
oom_memcg=/oom-1803,task_memcg=/oom-1803,task=python,pid=1803,uid=0
55698.714208 Memory cgroup out of memory: Killed process 1803 (python) total-vm:1193956kB, \
anon-rss:356040kB, file-rss:83640kB, shmem-rss:0kB, UID:0 pgtables:1212kB oom_score_adj:1000
56342.938132 python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
56342.938576 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
oom_memcg=/oom-12366,task_memcg=/oom-12366,task=python,pid=12366,uid=0
56342.938614 Memory cgroup out of memory: Killed process 12366 (python) total-vm:1193996kB, \
anon-rss:355940kB, file-rss:83476kB, shmem-rss:0kB, UID:0 pgtables:1212kB oom_score_adj:1000
56343.120001 oom_reaper: reaped process 12366 (python), now anon-rss:0kB
"""


def lines(text: str, kind: str = "oom-host") -> tuple[KernelLine, ...]:
    pairs = (line.split(" ", 1) for line in text.splitlines())
    return tuple(KernelLine(text=said, kind=kind, time=float(when)) for when, said in pairs)


def real_lines() -> tuple[KernelLine, ...]:
    """A real /dev/kmsg, classified as ``inspect`` does."""
    catalogue = load_catalogue()
    found = []
    for record in KMSG.read_text().splitlines():
        head, _, text = record.partition(";")
        hit = catalogue.search(text, "kernel")
        if hit is not None and hit.signature.kind:
            when = int(head.split(",")[2]) / 1e6
            found.append(KernelLine(text=text, kind=hit.signature.kind, time=when))
    return tuple(found)


def test_a_real_log_with_one_kill_has_one_finding() -> None:
    found = real_lines()
    assert sum(line.kind == "oom-host" for line in found) > 1
    told = judge(Seen(nodes=(NodeView(host="n", kernel=found),), time=4900.0))
    (issue,) = told.issues
    assert issue.startswith("n: the kernel says: Out of memory: Killed process 29345 (python)")
    assert "anon-rss:23717112kB" in issue


def test_two_kills_are_two_findings_with_the_limit_that_was_reached() -> None:
    first, second = each_once(lines(TWO_KILLS))
    assert first.text.startswith("Memory cgroup out of memory: Killed process 1803 (python)")
    assert first.text.endswith("[the limit of cgroup /oom-1803]")
    assert "Killed process 12366" in second.text
    assert second.text.endswith("[the limit of cgroup /oom-12366]")


def test_lines_without_a_time_are_told_apart_by_their_order() -> None:
    untimed = [msgspec.structs.replace(line, time=None) for line in lines(TWO_KILLS)]
    assert len(each_once(untimed)) == 2


def test_several_victims_of_one_shortage_are_several_kills() -> None:
    more = TWO_KILLS + "56342.94 Memory cgroup out of memory: Killed process 12367 (python)\n"
    assert [line.text.split("process ")[1][:5] for line in each_once(lines(more))] == [
        "1803 ",
        "12366",
        "12367",
    ]


def test_a_process_number_that_comes_again_much_later_is_another_kill() -> None:
    again = TWO_KILLS + "99999.0 Out of memory: Killed process 1803 (java)\n"
    assert len(each_once(lines(again))) == 3


def test_a_shortage_that_killed_nobody_stays() -> None:
    alone = lines(TWO_KILLS)[0]
    assert each_once([alone]) == [alone]
    assert len(each_once([alone, *lines(TWO_KILLS)])) == 3


def test_lines_that_are_no_kill_stay_as_they_are() -> None:
    other = KernelLine(text="fork: Cannot allocate memory", kind="oom-host", time=1.0)
    assert each_once([other, other]) == [other, other]


def test_a_lost_gpu_is_one_and_its_other_faults_stay() -> None:
    text = """\
1.0 NVRM: Xid (PCI:0000:18:00): 48, pid=1, DBE (double bit error) ECC Error
2.0 NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.
2.1 NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.
2.2 NVRM: Xid (PCI:0000:2a:00): 79, pid=2, GPU has fallen off the bus.
"""
    told = [line.text[:30] for line in each_once(lines(text, "gpu-lost"))]
    assert told == [
        "NVRM: Xid (PCI:0000:18:00): 48",
        "NVRM: Xid (PCI:0000:18:00): 79",
        "NVRM: Xid (PCI:0000:2a:00): 79",
    ]
