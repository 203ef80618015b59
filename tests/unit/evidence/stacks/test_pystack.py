"""pystack's output, with and without machine code. Layout as in its documentation."""

from __future__ import annotations

from ray_sentinel.evidence.stacks import classify_process, parse
from ray_sentinel.evidence.stacks.readers.sources import from_path
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace

DUMP = """\
Traceback for thread 4712 (python) [Waiting for the GIL] (most recent call last):
    (C) File "???", line 0, in __clone (/usr/lib64/libc.so.6)
    (C) File "Modules/_threadmodule.c", line 1100, in thread_run (python3.10)
    (Python) File "/usr/lib/python3.10/threading.py", line 973, in _bootstrap
        self._bootstrap_inner()
    (Python) File "/srv/count.py", line 40, in count
        total += i

Traceback for thread 4711 (python) [Has the GIL] (most recent call last):
    (C) File "???", line 0, in _start ()
    (Python) File "/srv/train.py", line 90, in <module>
        main()
    (Python) File "/v/site-packages/torch/distributed/distributed_c10d.py", line 2050, in all_reduce
        work.wait()
    (C) File "c10d/Work.cpp", line 90, in c10d::Work::wait (inlined) (/v/libtorch_cpu.so)
    (C) File "???", line 0, in pthread_cond_wait@@GLIBC_2.3.2 (/usr/lib64/libc.so.6)
"""


def read(text: str, pid: int = 0) -> StackTrace:
    (found,) = parse(text, ProcessId("node7", pid, 0))
    return found


def test_threads_and_frames_are_read_innermost_first() -> None:
    found = read(DUMP, 4711)
    other, main = found.threads
    assert found.tool == "py-spy-native"
    assert (other.tid, other.holds_gil, other.main) == (4712, False, False)
    assert (main.tid, main.holds_gil, main.main) == (4711, True, True)
    assert [(f.function, f.file, f.line, f.native) for f in main.frames[:3]] == [
        ("pthread_cond_wait@@GLIBC_2.3.2", "/usr/lib64/libc.so.6", 0, True),
        ("c10d::Work::wait", "c10d/Work.cpp", 90, True),
        ("all_reduce", "/v/site-packages/torch/distributed/distributed_c10d.py", 2050, False),
    ]
    assert main.frames[-1].file == ""  # of a library without a name


def test_the_main_thread_is_told_without_a_pid() -> None:
    assert [thread.main for thread in read(DUMP).threads] == [False, True]
    fact = classify_process([read(DUMP)])
    assert (fact.operation, fact.waits_for_others) == ("all_reduce", True)


def test_python_alone_is_read() -> None:
    text = "\n".join(line for line in DUMP.split("\n") if "(C) File" not in line)
    found = read(text)
    assert found.tool == "py-spy"
    assert classify_process([found]).operation == "all_reduce"


def test_a_thread_without_a_name_is_read() -> None:
    found = read(DUMP.replace(" (python) [", " [").replace("[Has the GIL]", "[]"), 4711)
    assert [(t.name, t.holds_gil) for t in found.threads] == [("", False), ("", False)]


def test_output_without_frames_says_what_is_wrong() -> None:
    found = read("Traceback for thread 7 (python) [] (most recent call last):\n", 7)
    assert found.error
    assert not found.threads[0].frames


def test_a_file_named_after_it_is_one_of_its_process() -> None:
    source = from_path("backtraces/pystack_node-07_4711.txt")
    assert (source.tool, source.host, source.pid) == ("pystack", "node-07", 4711)
