"""Both ends of connections put together."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.answers import awaited_answers, serving_drivers

NOW = 1_700_000_000.0
ROLLOUT, SERVER = ProcessId("host1", 10, 1), ProcessId("host2", 30, 1)
CHILD = ProcessId("host2", 31, 1)
PORTS = {("n1", 10): 4000, ("n2", 30): 5000}
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


def found(
    asks: Connection, *answers: Connection, ports: dict[tuple[str, int], int] = PORTS
) -> list[AwaitedAnswer]:
    return list(awaited_answers({"n1": [asks], "n2": answers}, ports, NOW))


def test_who_awaits_an_answer_of_whom() -> None:
    for owner in (SERVER, CHILD):
        assert found(ASKS, serves(owner)) == [
            AwaitedAnswer(who=ROLLOUT, whom=SERVER, asker=ROLLOUT, answerer=owner, since=NOW - 30.0)
        ]


def test_what_is_answered_young_or_of_somebody_else_is_left_out() -> None:
    for change in ({"asked_at": None}, {"asked_at": NOW + 0.1}, {"remote": "10.0.0.2:8001"}):
        assert found(msgspec.structs.replace(ASKS, **change), serves()) == []


def test_rays_own_calls_are_left_out() -> None:
    asks = msgspec.structs.replace(ASKS, remote="10.0.0.2:5000")
    for owner in (SERVER, CHILD):  # a forked child has what its parent had
        assert found(asks, serves(owner, port=5000)) == []
    assert found(ASKS, serves(), ports={("n1", 10): 4000}) == [], "Ray may listen there"
    elsewhere = {**PORTS, ("n1", 30): 8000}
    assert len(found(ASKS, serves(), ports=elsewhere)) == 1, "the same pid on another node"


def test_of_a_connection_that_a_child_has_inherited_the_parent_serves() -> None:
    for ends in ((serves(CHILD), serves()), (serves(), serves(CHILD))):
        (one,) = found(ASKS, *ends)
        assert one.answerer == SERVER


def test_loopback_is_another_one_on_each_machine() -> None:
    asks = msgspec.structs.replace(
        ASKS, local="127.0.0.1:40112", remote="127.0.0.1:8000", network="a"
    )
    for network, count in (("a", 1), ("b", 0)):
        end = msgspec.structs.replace(
            serves(), local="127.0.0.1:8000", remote="127.0.0.1:40112", network=network
        )
        assert len(found(asks, end)) == count


def test_drivers_that_listen_for_others_than_ray() -> None:
    own = Connection(process=SERVER, owner=SERVER, local="0.0.0.0:5000", serves=True)
    other = msgspec.structs.replace(own, local="127.0.0.1:8888")
    below = msgspec.structs.replace(other, owner=CHILD)

    def serving(*ends: Connection, driver: tuple[str, int] = ("n2", 30)) -> list[ProcessId]:
        return list(serving_drivers({"n2": ends}, PORTS, {driver}))

    assert serving(own, other) == [SERVER]
    assert serving(own, below) == [], "it may be Ray's"
    assert serving(own, serves()) == [], "none but Ray's port"
    assert serving(own, other, driver=("n1", 30)) == [], "another process"
