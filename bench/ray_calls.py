"""What a look at Ray's table and its calls costs, with a control store that has much to report.

    python bench/ray_calls.py [--actors 10000] [--finished 100000] [--looks 5]

The store is a program of its own with Ray's services. It keeps to the limits that a request names,
as Ray's does: of 100,000 ended calls it reports 10,000. Prints the median in milliseconds of our
CPU, and of time, most of which that store takes, which is written in Python; and by how much the
peak of our memory has grown: for the table of drivers and actors, for a look at the calls, for one
that asks how long ended calls took too, and for one at a job that waits for its placement group,
which asks who holds the resources that the group lacks: 1,000 groups are placed on as many nodes,
where the actors run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from processes import most_resident
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

from ray_sentinel.actors.coordinator.ray.calls import ControlStoreCalls
from ray_sentinel.actors.coordinator.ray.store import RayStore

JOB = bytes([1, 0, 0, 0])
WAITING = bytes([2, 0, 0, 0])
"""The job whose group is not placed."""
NODES = 1000
CLASSES = 20
NAMES = 50


class FullStore(
    gcs_service_pb2_grpc.JobInfoGcsServiceServicer,
    gcs_service_pb2_grpc.ActorInfoGcsServiceServicer,
    gcs_service_pb2_grpc.PlacementGroupInfoGcsServiceServicer,
    gcs_service_pb2_grpc.NodeResourceInfoGcsServiceServicer,
    gcs_service_pb2_grpc.TaskInfoGcsServiceServicer,
    gcs_service_pb2_grpc.InternalKVGcsServiceServicer,
):
    """All actors live, each with a call that runs."""

    def __init__(self, actors: int, finished: int) -> None:
        self._actors = [actor(number) for number in range(actors)]
        self._running = [call(number, "RUNNING") for number in range(actors)]
        self._finished = [call(number, "RUNNING", "FINISHED") for number in range(finished)]

    def GetAllJobInfo(self, request: Any, context: Any) -> Any:
        """The two jobs."""
        told = [
            gcs_pb2.JobTableData(
                job_id=job, driver_pid=7, driver_ip_address="10.0.0.1", entrypoint="python train.py"
            )
            for job in (JOB, WAITING)
        ]
        return gcs_service_pb2.GetAllJobInfoReply(job_info_list=told)

    def GetAllActorInfo(self, request: Any, context: Any) -> Any:
        """The live actors, up to the request's limit; none in other states."""
        alive = request.filters.state == gcs_pb2.ActorTableData.ActorState.Value("ALIVE")
        told = self._actors[: request.limit] if alive else []
        return gcs_service_pb2.GetAllActorInfoReply(actor_table_data=told)

    def GetAllPlacementGroup(self, request: Any, context: Any) -> Any:
        """One placed group for each node, and one that waits."""
        told = [group(number, JOB, "CREATED") for number in range(NODES)]
        told.append(group(NODES, WAITING, "PENDING"))
        return gcs_service_pb2.GetAllPlacementGroupReply(placement_group_table_data=told)

    def GetAllAvailableResources(self, request: Any, context: Any) -> Any:
        """What each node has free."""
        reply = gcs_service_pb2.GetAllAvailableResourcesReply()
        for number in range(NODES):
            node = reply.resources_list.add(node_id=id_of(number, 28))
            node.resources_available["CPU"] = 32.0
        return reply

    def GetAllTotalResources(self, request: Any, context: Any) -> Any:
        """What each node has."""
        reply = gcs_service_pb2.GetAllTotalResourcesReply()
        for number in range(NODES):
            node = reply.resources_list.add(node_id=id_of(number, 28))
            node.resources_total["CPU"], node.resources_total["GPU"] = 64.0, 10.0
        return reply

    def InternalKVExists(self, request: Any, context: Any) -> Any:
        """No key exists."""
        return gcs_service_pb2.InternalKVExistsReply()

    def GetTaskEvents(self, request: Any, context: Any) -> Any:
        """The ended or the running calls, up to the request's limit."""
        if request.filters.task_name_filters:
            return gcs_service_pb2.GetTaskEventsReply()
        equal = gcs_service_pb2.FilterPredicate.Value("EQUAL")
        ended = any(one.predicate == equal for one in request.filters.state_filters)
        found = self._finished if ended else self._running
        return gcs_service_pb2.GetTaskEventsReply(
            events_by_task=found[: request.limit], num_truncated=max(0, len(found) - request.limit)
        )


def id_of(number: int, length: int) -> bytes:
    """An id of ``length`` bytes."""
    return number.to_bytes(length, "little")


def actor(number: int) -> Any:
    """One live actor."""
    made = gcs_pb2.ActorTableData(
        actor_id=id_of(number, 16),
        job_id=JOB,
        state="ALIVE",
        class_name=f"Rollout{number % CLASSES}",
        pid=1000 + number,
        start_time=1_700_000_000_000 + number,
        serialized_runtime_env='{"env_vars": {"A": "b"}}' * 10,
    )
    made.address.node_id = made.owner_address.node_id = id_of(number % NODES, 28)
    made.owner_address.ip_address = "10.0.0.1"
    made.required_resources["GPU"] = 1.0
    return made


def group(number: int, job: bytes, state: str) -> Any:
    """One placement group of two bundles."""
    made = gcs_pb2.PlacementGroupTableData(
        placement_group_id=id_of(number, 18),
        creator_job_id=job,
        state=state,
        placement_group_creation_timestamp_ms=1_700_000_000_000,
    )
    for index in range(2):
        bundle = made.bundles.add()
        bundle.bundle_id.placement_group_id = made.placement_group_id
        bundle.bundle_id.bundle_index = index
        bundle.unit_resources["GPU"] = 4.0
        if state == "CREATED":
            bundle.node_id = id_of(number % NODES, 28)
    return made


def call(number: int, *states: str) -> Any:
    event = gcs_pb2.TaskEvents(task_id=id_of(number, 24), job_id=JOB)
    event.task_info.type = "ACTOR_TASK"
    event.task_info.name = f"Rollout.generate{number % NAMES}"
    event.task_info.actor_id = id_of(number, 16)
    event.task_info.required_resources["GPU"] = 1.0
    event.state_updates.node_id = id_of(number % NODES, 28)
    event.state_updates.worker_pid = 1000 + number
    waits = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER")
    for at, state in enumerate((*waits, *states)):
        status = common_pb2.TaskStatus.Value(state)
        event.state_updates.state_ts_ns[status] = 1_700_000_000 * 10**9 + at
    return event


def serve(actors: int, finished: int) -> None:
    """Say the port on one line, and answer until nobody reads us any more."""
    # The reply of 10,000 actors is larger than gRPC's 4 MiB.
    server = grpc.server(
        futures.ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)]
    )
    store = FullStore(actors, finished)
    names = ("JobInfo", "ActorInfo", "PlacementGroupInfo", "NodeResourceInfo", "TaskInfo")
    for name in (*names, "InternalKV"):
        getattr(gcs_service_pb2_grpc, f"add_{name}GcsServiceServicer_to_server")(store, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


def measure(what: str, look: Callable[[], Any], looks: int) -> None:
    """Print what one kind of look takes, and by how much the peak of memory grows."""
    before = most_resident()
    cpu, wall = list[float](), list[float]()
    for _ in range(looks):
        begun, at = time.process_time(), time.monotonic()
        found = look()
        cpu.append(1000 * (time.process_time() - begun))
        wall.append(1000 * (time.monotonic() - at))
        if found.problem:
            sys.exit(found.problem)
    print(
        f"{what:<28} {statistics.median(cpu):7.0f} ms of CPU, {statistics.median(wall):7.0f} ms; "
        f"peak {most_resident() - before:+6.0f} MiB; {len(found.actors)} actors, "
        f"{len(found.calls)} calls, {sum(one.count for one in found.ended.values())} ended",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, default=10_000)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.actors, asked.finished)
        return
    command = [sys.executable, __file__, "--serve"]
    command += ["--actors", str(asked.actors), "--finished", str(asked.finished)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with RayStore(f"127.0.0.1:{port}") as store:
            calls = ControlStoreCalls(store)
            measure("the table", lambda: calls.table(0.0), asked.looks)
            measure("a look at the calls", lambda: calls.fetch(0.0), asked.looks)
            measure("the same, with the ended", lambda: calls.fetch(0.0, times=True), asked.looks)
            waiting = WAITING.hex()
            at = 1_700_000_100.0
            measure("who holds what is missing", lambda: calls.fetch(at, waiting), asked.looks)


if __name__ == "__main__":
    main()
