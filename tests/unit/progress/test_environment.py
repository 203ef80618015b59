"""Rank, job and GPUs from the variables that launchers set."""

import os

import pytest

from ray_sentinel.progress.discovery.environment import (
    attempt_from,
    gpus_from,
    job_from,
    launch_variables,
    rank_from,
)
from ray_sentinel.progress.rank.who import resolve

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("environ", "scheme", "rank", "size", "local"),
    [
        (TORCHRUN, "torchrun", 3, 8, 1),
        ({"RANK": "0"}, "torchrun", 0, None, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            },
            "mpi",
            2,
            4,
            0,
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "mpi", 1, 2, None),
        ({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}, "jax", 1, 2, None),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, "tpu", 1, 2, None),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1"},
            "slurm",
            1,
            16,
            1,
        ),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", **TORCHRUN}, "torchrun", 3, 8, 1),
    ],
)
def test_each_launcher_says_the_rank(environ, scheme, rank, size, local):
    found = rank_from(environ)
    assert found is not None
    assert (found.source, found.rank, found.world_size, found.local_rank) == (
        scheme,
        rank,
        size,
        local,
    )


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": ""},
        {"RANK": "-1"},
        {"RANK": "one"},
        {"RANK": "1_0"},
        {"RANK": "٣"},
        {"RANK": "9" * 30},
        {"RANK": "8", "WORLD_SIZE": "8"},
        {"SLURM_PROCID": "0"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
    ],
)
def test_what_is_no_rank_counts_as_not_set(environ):
    assert rank_from(environ) is None


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"RAY_SENTINEL_JOB": "mine", "TORCHELASTIC_RUN_ID": "x"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "run7", "MASTER_ADDR": "h"}, "run7"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "h:1"),
        ({"MASTER_ADDR": "h"}, "h"),
        ({"JAX_COORDINATOR_ADDRESS": "h:9"}, "h:9"),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "slurm-12.0"),
        ({"SLURM_JOB_ID": "12"}, "slurm-12"),
        ({"PMIX_NAMESPACE": "prterun-h-7@1"}, "prterun-h-7@1"),
        ({}, ""),
        # What names a job on its own host only goes by the host's name.
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "node7:29500"),
        ({"MASTER_ADDR": "127.0.1.1", "MASTER_PORT": "29500"}, "node7:29500"),
        ({"MASTER_ADDR": "localhost"}, "node7"),
        ({"MASTER_ADDR": "::1", "MASTER_PORT": "1"}, "node7:1"),
        ({"JAX_COORDINATOR_ADDRESS": "[::1]:9"}, "node7:9"),
        ({"JAX_COORDINATOR_ADDRESS": "localhost:9"}, "node7:9"),
        ({"MASTER_ADDR": "localhost-3.cluster"}, "localhost-3.cluster"),
        ({"MASTER_ADDR": "10.127.0.0"}, "10.127.0.0"),
    ],
)
def test_job_name(environ, job):
    assert job_from(environ, "node7") == job


def test_a_rank_and_its_agent_name_a_job_of_one_host_alike():
    local = {"MASTER_ADDR": "localhost", "MASTER_PORT": "7", "RANK": "0", "WORLD_SIZE": "2"}
    assert job_from(local) == f"{os.uname().nodename}:7" == resolve(environ=local, modules={}).job


def test_attempt_and_gpus():
    assert attempt_from({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2
    assert attempt_from({}) == 0
    assert gpus_from({"CUDA_VISIBLE_DEVICES": "0, 3"}) == ("0", "3")
    assert gpus_from({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_launch_variables_are_what_counts_and_survive_anything():
    data = b"PATH=/bin\0RANK=1\0RANK=2\0no equals\0MASTER_ADDR=\xff\0\0"
    assert launch_variables(data) == {"RANK": "1", "MASTER_ADDR": "�"}
