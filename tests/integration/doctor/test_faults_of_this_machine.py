"""More of the doctor's checks, each on a fault that is really there: below a changed ``ulimit``,
with a small ``/dev/shm``, without a capability, with a process that hangs in the kernel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.parts import lacking, needs_root, require
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

DOCTOR = [sys.executable, "-m", "ray_sentinel.cli.main", "doctor", "--local", "--json"]
SECONDS = 60.0
Results = list[dict[str, str]]


def doctor(
    check: str, *arguments: str, behind: tuple[str, ...] = (), **environ: str
) -> tuple[int, Results]:
    """One check, started ``behind`` another program; (exit code, results)."""
    ended = subprocess.run(
        [*behind, *DOCTOR, "--only", check, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environ},
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)["results"]


def test_few_open_files_are_allowed() -> None:
    code, found = doctor("limits", behind=("sh", "-c", 'ulimit -n 512; exec "$@"', "-"))
    assert code == 1
    [files] = [one for one in found if "open files" in one["seen"]]
    assert (files["outcome"], files["seen"]) == ("failure", "at most 512 open files")
    assert "ulimit -n 65536" in files["remedy"]


@needs_root()
@pytest.mark.parametrize(("size", "outcome"), [("64m", "failure"), ("1g", "warning")])
def test_a_container_s_own_shared_memory(size: str, outcome: str) -> None:
    mount = f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"'
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "-", "true"], capture_output=True, check=False
    )
    if probe.returncode:
        lacking(f"needs a mount namespace of its own: {probe.stderr.decode()}")
    behind = ("unshare", "--mount", "sh", "-c", mount, "-")
    code, [found] = doctor("shared-memory", behind=behind)
    assert (code, found["outcome"]) == (1, outcome)
    assert "--shm-size" in found["remedy"]
    assert "medium: Memory" in found["remedy"]


def test_py_spy_is_not_there(tmp_path: Path) -> None:
    # Another interpreter beside which there is none, and a PATH without one.
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python").symlink_to(sys.executable)
    script = (
        "import json, sys\n"
        "sys.executable = sys.argv[1]\n"
        "from ray_sentinel.doctor.check import Here\n"
        "from ray_sentinel.doctor.checks.tracing import TracingCheck\n"
        "from ray_sentinel.doctor.plan import RunPlan\n"
        "facts = TracingCheck().look(RunPlan(), Here(host='a'))\n"
        "print(json.dumps([facts.py_spy, facts.allowed]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(bare / "python")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )
    assert json.loads(ended.stdout) == ["", True]


@needs_root()
def test_the_kernel_forbids_to_look_into_processes() -> None:
    script = (
        "import sys\n"
        "from ray_sentinel.progress.proc.tracing import may_trace\n"
        "print(may_trace(int(sys.argv[1])))\n"
    )
    # As in a container without SYS_PTRACE, where the ranks are another user's.
    sleeping = subprocess.Popen(["sleep", "60"], user=65534, group=65534, cwd="/")
    try:
        look = [sys.executable, "-c", script, str(sleeping.pid)]
        without = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", *look]
        answers = [
            subprocess.run(one, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
            for one in (look, without)
        ]
    finally:
        sleeping.kill()
        sleeping.wait(timeout=SECONDS)
    assert answers == ["True\n", "False\n"]


HANGS = """
#include <unistd.h>
int main(void) {
    /* The parent of vfork() waits in D state until its child has gone (man 2 vfork). */
    if (vfork() == 0) { sleep(60); _exit(0); }
    return 0;
}
"""


def test_a_process_hangs_in_the_kernel_already(tmp_path: Path) -> None:
    (tmp_path / "hangs.c").write_text(HANGS)
    program = tmp_path / "nvidia_hangs"
    subprocess.run(
        [require("cc"), "-o", str(program), str(tmp_path / "hangs.c")], check=True, timeout=SECONDS
    )
    hanging = subprocess.Popen([str(program)], start_new_session=True)
    try:
        until(lambda: " D " in Path(f"/proc/{hanging.pid}/stat").read_text())
        code, found = doctor("d-state")
    finally:
        os.killpg(hanging.pid, 9)
        hanging.wait(timeout=SECONDS)
    assert code == 1
    assert any(f"pid {hanging.pid} (nvidia_hangs)" in one["seen"] for one in found), found


def until(look: Callable[[], object]) -> None:
    eventually(look, "it comes", SECONDS, every=0.02)


AWS = {
    "Unable to locate credentials. You can configure credentials by running \"aws configure\".":
        "AWS_ACCESS_KEY_ID",
    "An error occurred (ExpiredToken) when calling the ListObjectsV2 operation: The provided "
    "token has expired.": "log in anew",
    "An error occurred (AccessDenied) when calling the ListObjectsV2 operation: Access Denied":
        "s3:ListBucket",
    "An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation: The specified "
    "bucket does not exist": "create the bucket",
    'Could not connect to the endpoint URL: "https://b.s3.amazonaws.com/"': "no way to the store",
    "An error occurred (InvalidAccessKeyId) when calling the ListObjectsV2 operation: The AWS "
    "Access Key Id you provided does not exist in our records.": "AWS_ACCESS_KEY_ID",
}  # fmt: skip
"""What aws-cli 2 says on standard error, and what mends it."""


def client(folder: Path, name: str, script: str) -> str:
    """A store's client of ours; the PATH that finds it."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize(("says", "remedy"), AWS.items(), ids=range(len(AWS)))
def test_a_checkpoint_store_that_does_not_let_us_in(tmp_path: Path, says: str, remedy: str) -> None:
    (tmp_path / "says").write_text(says)
    path = client(tmp_path, "aws", f"echo >&2; cat {tmp_path}/says >&2; exit 254")
    code, [found] = doctor("object-store", "--checkpoint-dir", "s3://b/run", PATH=path)
    assert (code, found["outcome"]) == (1, "failure")
    assert remedy in found["remedy"]


def test_a_checkpoint_store_is_asked_to_list_one_key_and_nothing_else(tmp_path: Path) -> None:
    path = client(tmp_path, "aws", f'echo "$@" >> {tmp_path}/asked')
    code, [found] = doctor("object-store", "--checkpoint-dir", "s3://b/run/x", PATH=path)
    assert (code, found["outcome"]) == (0, "ok")
    assert "writing was not tried" in found["seen"]
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["s3api", "list-objects-v2", "--bucket", "b", "--max-items", "1",
                     "--prefix", "run/x/"]  # fmt: skip


def test_a_checkpoint_store_that_hangs(tmp_path: Path) -> None:
    path = client(tmp_path, "aws", "sleep 300")
    begun = time.monotonic()
    code, [found] = doctor("object-store", "--checkpoint-dir", "s3://b/run", PATH=path)
    assert time.monotonic() - begun < 30
    assert (code, found["outcome"]) == (1, "failure")
    assert "no way to the store" in found["remedy"]


SICK = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>570.1</driver_version><cuda_version>12.8</cuda_version>
 <gpu id="00000000:18:00.0"><product_name>NVIDIA H100</product_name><uuid>GPU-1</uuid>
  <fb_memory_usage><total>81559 MiB</total><used>70000 MiB</used></fb_memory_usage>
  <ecc_errors><volatile><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
  <remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>
  <processes><process_info><pid>4711</pid><type>C</type><process_name>python old.py</process_name>
  </process_info></processes>
 </gpu></nvidia_smi_log>"""


def test_what_the_driver_s_program_tells(tmp_path: Path) -> None:
    (tmp_path / "answer.xml").write_text(SICK)
    path = client(tmp_path, "nvidia-smi", f"cat {tmp_path}/answer.xml")
    code, found = doctor("gpu-errors", PATH=path)
    assert code == 1
    assert any("uncorrect" in one["seen"].lower() for one in found)
    code, found = doctor("gpus", "--gpus", "8", PATH=path)
    assert code == 1
    assert any("4711 python old.py" in one["seen"] for one in found)
    assert any(one["outcome"] == "failure" for one in found), "7 GPUs are missing"


def test_a_rendezvous_that_cannot_be_reached() -> None:
    code, found = doctor("rendezvous", "--rdzv-endpoint", "no-such-host.invalid:29400")
    assert code == 1
    assert "cannot be looked up" in found[0]["seen"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, found = doctor("rendezvous", "--rdzv-endpoint", f"127.0.0.1:{port}")
        assert code == 1
        assert "something listens" in found[0]["seen"]
    code, found = doctor("rendezvous", "--rdzv-endpoint", f"127.0.0.1:{port}")
    assert (code, found[0]["outcome"]) == (0, "ok")


def test_ranks_variables_that_torchrun_would_have_set() -> None:
    given = ("--env", "RANK=0", "--env", "WORLD_SIZE=2")
    code, found = doctor("rank-environment", *given)
    assert code == 1
    assert "LOCAL_RANK" in found[0]["seen"]
    more = ("--env", "LOCAL_RANK=0", "--env", "MASTER_PORT=29500")
    code, found = doctor("rank-environment", *given, *more, "--env", "MASTER_ADDR=203.0.113.7")
    assert code == 1
    assert any("MASTER_ADDR" in one["seen"] for one in found)


def test_a_package_that_is_missing() -> None:
    code, found = doctor("versions", "--package", "no-such-package-here")
    assert code == 1
    assert any(one["remedy"] == "pip install no-such-package-here" for one in found)


@needs_root()
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    # Root may write anywhere: a file system that is read-only stops it, too.
    mount = f'mount -t tmpfs -o ro,size=64m none {tmp_path} && exec "$@"'
    behind = ("unshare", "--mount", "sh", "-c", mount, "-")
    code, [found] = doctor("disk", "--checkpoint-dir", str(tmp_path), behind=behind)
    assert (code, found["outcome"]) == (1, "failure")
    assert "Read-only file system" in found["seen"]


@pytest.mark.parametrize("kind", ["none", "folder", "binary", "large"])
def test_a_configuration_file_that_is_none(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "config.yaml"
    if kind == "folder":
        file.mkdir()
    elif kind == "binary":
        file.write_bytes(os.urandom(4096))
    elif kind == "large":
        file.write_bytes(b"a: 1\n" * (1 << 20))
    code, found = doctor("config-file", "--config-file", str(file))
    assert (code, found[0]["outcome"]) == (1, "failure")
    assert str(file) in found[0]["seen"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--nodes", "0"), "--nodes must be at least 1"),
        (("--gpus", "-1"), "--gpus must be at least 0"),
        (("--deadline", "0"), "--deadline: 0 is not more than 0"),
        (("--max-skew", "nan"), "--max-skew: nan is no number"),
        (("--port", "65536"), "ports go from 1 to 65535"),
    ],
)
def test_options_that_can_never_hold(option: tuple[str, str], says: str) -> None:
    ended = subprocess.run([*DOCTOR, *option], capture_output=True, timeout=SECONDS, check=False)
    assert ended.returncode == 2
    assert says in ended.stderr.decode()


def test_a_user_s_check_that_ends_the_program_does_not_end_the_doctor_well(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit(0)\n")
    command = [*DOCTOR, "--checks", str(file)]
    ended = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert ended.returncode == 2
    assert b"mine.py: cannot be loaded: SystemExit(0)" in ended.stderr
    file.write_text(
        "import msgspec, sys\n"
        "from ray_sentinel.doctor.check import Check\n"
        "class Facts(msgspec.Struct):\n"
        "    pass\n"
        "class Ends(Check[Facts]):\n"
        "    name, facts = 'ends', Facts\n"
        "    def look(self, plan, here):\n"
        "        return Facts() if here.environ.get('LOOK') else sys.exit(0)\n"
        "    def judge(self, case):\n"
        "        sys.exit(0)\n"
    )
    for environ in ({}, {"LOOK": "1"}):
        code, [found] = doctor("ends", "--checks", str(file), **environ)
        assert (code, found["outcome"]) == (1, "warning")
        assert "the check itself failed: SystemExit" in found["seen"]


def test_a_user_s_check_that_looks_at_nothing_is_refused(tmp_path: Path) -> None:
    """Its ``look`` is misspelt."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import msgspec\n"
        "from ray_sentinel.doctor.check import Check\n"
        "class Facts(msgspec.Struct):\n"
        "    pass\n"
        "class Looks(Check[Facts]):\n"
        "    name, facts = 'looks', Facts\n"
        "    def lok(self, plan, here):\n"
        "        return Facts()\n"
        "    def judge(self, case):\n"
        "        return ()\n"
    )
    command = [*DOCTOR, "--checks", str(file)]
    ended = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert ended.returncode == 2
    assert b"mine.py: cannot be loaded" in ended.stderr
    assert b"look" in ended.stderr


def test_a_name_cannot_fake_a_line() -> None:
    command = [*DOCTOR[:-1], "--only", "disk", "--checkpoint-dir", "/none\nok      disk   fine"]
    ended = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert ended.returncode == 1
    assert not any(line.startswith(b"ok") for line in ended.stdout.splitlines())
