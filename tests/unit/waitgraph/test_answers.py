"""Both ends of connections put together."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import RayActor, RayCalls, RayDriver
from ray_sentinel.waitgraph.answers import awaited_answers, serving_drivers

NOW = 1_700_000_000.0
ROLLOUT, SERVER = ProcessId("host1", 10, 1), ProcessId("host2", 30, 1)
CHILD = ProcessId("host2", 31, 1)
RAY = RayCalls(
    at=NOW,
    actors=(
        RayActor(id="a", job="j", kind="Rollout", node="n1", pid=10, port=4000),
        RayActor(id="b", job="j", kind="Server", node="n2", pid=30, port=5000),
    ),
)
ASKS = Connection(
    process=ROLLOUT,
    owner=ROLLOUT,
    local="10.0.0.1:40112",
    remote="10.0.0.2:8000",
    serves=False,
    asked_at=NOW - 30.0,
)


def serves(owner: ProcessId = SERVER, port: int = 8000) -> Connection:
    return Connection(
        process=SERVER,
        owner=owner,
        local=f"10.0.0.2:{port}",
        remote="10.0.0.1:40112",
        serves=True,
    )


def found(asks: Connection, answers: Connection, ray: RayCalls = RAY) -> list[AwaitedAnswer]:
    return list(awaited_answers({"n1": [asks], "n2": [answers]}, ray))


def test_who_awaits_an_answer_of_whom() -> None:
    for owner in (SERVER, CHILD):
        assert found(ASKS, serves(owner)) == [
            AwaitedAnswer(who=ROLLOUT, whom=SERVER, asker=ROLLOUT, answerer=owner, since=NOW - 30.0)
        ]


def test_what_is_answered_young_or_of_somebody_else_is_left_out() -> None:
    for change in ({"asked_at": None}, {"asked_at": NOW + 0.1}, {"remote": "10.0.0.2:8001"}):
        assert found(msgspec.structs.replace(ASKS, **change), serves()) == []


def test_rays_own_calls_of_actors_are_left_out() -> None:
    asks = msgspec.structs.replace(ASKS, remote="10.0.0.2:5000")
    assert found(asks, serves(port=5000)) == []
    assert len(found(asks, serves(CHILD, port=5000))) == 1
    unknown = msgspec.structs.replace(RAY, actors=RAY.actors[:1])
    assert found(ASKS, serves(), unknown) == [], "Ray may listen there"


def test_drivers_that_listen_for_others_than_ray() -> None:
    drivers = (RayDriver(job="j", pid=30, port=5000, address="10.0.0.2"),)
    own = Connection(process=SERVER, owner=SERVER, local="0.0.0.0:5000", serves=True)
    other = msgspec.structs.replace(own, local="127.0.0.1:8888")
    assert list(serving_drivers([own, other], drivers)) == [SERVER]
    below = msgspec.structs.replace(other, owner=CHILD)
    assert list(serving_drivers([own, below], drivers)) == [], "it may be Ray's"
    assert list(serving_drivers([own, serves()], drivers)) == [], "none but Ray's port"
    unknown = (msgspec.structs.replace(drivers[0], port=0),)
    assert list(serving_drivers([own], unknown)) == [], "it may be Ray's"


def test_ends_on_nodes_that_use_the_same_pid() -> None:
    same = msgspec.structs.replace(RAY.actors[0], pid=30, port=8000)
    ray = msgspec.structs.replace(RAY, actors=(*RAY.actors, same))
    assert len(found(ASKS, serves(), ray)) == 1
