"""The examples: those that need no cluster are run, the manifests are checked field by field."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"

# KubeRay's API (ray.io/v1) and Kubernetes' core/v1, as far as the example uses them, and their
# neighbours, so that a misplaced field is found.
CLUSTER = {"rayVersion", "headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling"}
CLUSTER |= {"autoscalerOptions", "headServiceAnnotations", "suspend", "gcsFaultToleranceOptions"}
HEAD = {"rayStartParams", "template", "serviceType", "headService", "enableIngress"}
WORKER = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
WORKER |= {"numOfHosts", "idleTimeoutSeconds", "scaleStrategy", "suspend"}
POD = {"containers", "initContainers", "volumes", "shareProcessNamespace", "hostNetwork"}
POD |= {"terminationGracePeriodSeconds", "nodeSelector", "tolerations", "securityContext"}
CONTAINER = {"name", "image", "env", "ports", "resources", "securityContext", "volumeMounts"}
CONTAINER |= {"command", "args", "lifecycle", "workingDir", "imagePullPolicy"}


def only(given: dict[str, Any], known: set[str]) -> None:
    assert given.keys() <= known, given.keys() - known


QUANTITY = r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"
"""Kubernetes' resource quantities, as far as people write them."""
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A name of RFC 1123."""


def check_container(container: dict[str, Any]) -> None:
    """The types of core/v1's Container: the API server refuses others."""
    assert re.fullmatch(LABEL, container["name"])
    for item in container["env"]:
        assert re.fullmatch(r"[A-Za-z_]\w*", item["name"])
        assert isinstance(item["value"], str), f"{item['name']}: a variable is a text"
    for port in container["ports"]:
        assert isinstance(port["containerPort"], int)
        assert 0 < port["containerPort"] < 65536
        assert re.fullmatch(r"[a-z0-9-]{1,15}", port["name"]), "IANA_SVC_NAME"
    names = [port["name"] for port in container["ports"]]
    assert len(set(names)) == len(names)
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    for given in (limits, requests):
        assert all(isinstance(v, str) and re.fullmatch(QUANTITY, v) for v in given.values())
    for name in (limits | requests).keys() - {"cpu", "memory"}:
        assert limits[name] == requests[name], "extended resources are not overcommitted"
    for mount in container["volumeMounts"]:
        only(mount, {"name", "mountPath", "readOnly", "subPath"})
        assert mount["mountPath"].startswith("/")
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(paths)) == len(paths)


def test_the_kuberay_manifest() -> None:
    [manifest] = yaml.safe_load_all((EXAMPLES / "kubernetes/raycluster.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    only(manifest["spec"], CLUSTER)
    assert re.fullmatch(LABEL, manifest["metadata"]["name"])
    head, workers = manifest["spec"]["headGroupSpec"], manifest["spec"]["workerGroupSpecs"]
    only(head, HEAD)
    for group in workers:
        only(group, WORKER)
        assert re.fullmatch(LABEL, group["groupName"])
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (head, *workers):
        params = group["rayStartParams"]
        assert all(isinstance(value, str) for value in params.values()), "KubeRay takes texts only"
        only(group["template"], {"metadata", "spec"})
        pod = group["template"]["spec"]
        only(pod, POD)
        assert pod["shareProcessNamespace"] is True
        volumes = {volume["name"] for volume in pod["volumes"]}
        annotations = group["template"]["metadata"]["annotations"]
        assert all(isinstance(value, str) for value in annotations.values())
        for container in pod["containers"]:
            only(container, CONTAINER)
            check_container(container)
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert "SYS_PTRACE" in container["securityContext"]["capabilities"]["add"]
            env = {item["name"]: item["value"] for item in container["env"]}
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert env["RAY_SENTINEL_LOG_DIR"].startswith(tuple(mounts)), "must outlive the pod"
            assert "/dev/shm" in mounts


@pytest.mark.parametrize("name", ["slurm/ray_job.sbatch", "supervised_torchrun/run.sh"])
def test_the_scripts(name: str) -> None:
    script = EXAMPLES / name
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)
    if (checker := shutil.which("shellcheck")) is not None:
        subprocess.run([checker, str(script)], check=True, timeout=60)


def test_slurm_takes_the_directives() -> None:
    lines = (EXAMPLES / "slurm/ray_job.sbatch").read_text().splitlines()
    options = [line.split("--")[1].split("=")[0] for line in lines if line.startswith("#SBATCH")]
    known = {"job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time"}
    assert set(options) <= known | {"exclusive", "signal"}
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert last < first, "Slurm reads no directive behind the first command"


SLURM = {
    "scontrol": 'test "$*" = "show hostnames n[1-2]" && printf "n1\\nn2\\n"',
    "srun": 'echo "$@" >> "$SEEN/srun"; case "$*" in *hostname*) echo "10.0.0.1 fd00::1" ;; esac',
    "ray-sentinel": (
        'echo "$@" >> "$SEEN/sentinel"\n'
        f'if test "$1" = run; then exec {sys.executable} -m ray_sentinel.cli.main "$@"; fi'
    ),
    "python": (
        'trap "touch $SEEN/saved; exit 0" TERM\n'
        'echo "$@" > "$SEEN/trained"; while :; do /bin/sleep 0.1; done'
    ),
    "sleep": "exit 0",
}
"""Programs in the place of Slurm's and of the training; the supervisor is the real one."""


def test_the_slurm_script_passes_on_the_signal_before_the_end(tmp_path: Path) -> None:
    programs, seen = tmp_path / "bin", tmp_path / "seen"
    programs.mkdir()
    seen.mkdir()
    for name, text in SLURM.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SEEN": str(seen),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
    }
    job = subprocess.Popen(
        ["bash", str(EXAMPLES / "slurm/ray_job.sbatch")], env=environ, stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: (seen / "trained").exists() or job.poll() is not None, "it trains", 60.0)
        assert job.poll() is None
        job.terminate()  # --signal=B: to the batch shell alone
        _, err = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 143, err.decode()
    assert (seen / "saved").exists(), "the training could save"
    steps = (seen / "srun").read_text().splitlines()
    assert [line for line in steps if "ray start --head" in line and "-w n1" in line]
    assert [line for line in steps if "--address=10.0.0.1:6379" in line and "-w n2" in line]
    assert (seen / "sentinel").read_text().splitlines()[:2] == [
        "up",
        f"doctor --nodes 2 --gpus 16 --checkpoint-dir {tmp_path}/checkpoints/train "
        "--allow-warnings",
    ]


def test_the_supervised_torchrun_job_goes_on_after_a_crash(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CKPT": str(tmp_path / "checkpoints"),
        "RAY_SENTINEL_LOG_DIR": str(tmp_path / "log"),
        # Else it has the cluster watched that other tests use, into a folder that they do not know.
        "RAY_ADDRESS": "127.0.0.1:1",
        "PORT": port,
        "RETRY_DELAY": "0.5",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(EXAMPLES / "supervised_torchrun/run.sh"), "--steps", "60", "--crash-at", "50"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=170, env=environ, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "attempt 1 starts from" in ended.stderr
    assert "step_40" in ended.stderr
    assert "step 60 loss" in ended.stdout
    assert (tmp_path / "checkpoints/step_60/model.pt").exists()


@pytest.fixture(scope="module")
def one_node() -> Iterator[RayCluster]:
    """For all jobs, one after the other; the first has it watched."""
    cluster = RayCluster(head_cpus=4, addresses=())
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("name", ["actors_job.py", "ray_train_job.py", "rl_job.py"])
def test_the_ray_jobs(name: str, one_node: RayCluster, tmp_path: Path) -> None:
    environ = one_node.environ(
        STEPS="20",
        STORAGE=str(tmp_path / "storage"),
        RAY_SENTINEL_LOG_DIR=str(tmp_path / "log"),
    )
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True, text=True, timeout=170, env=environ, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
    assert "loss" in ended.stdout
