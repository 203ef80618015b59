"""The RAS client against a service that speaks the protocol, and against everything else."""

from __future__ import annotations

import socket
import time

import pytest

from ray_sentinel.capture import ras_client
from ray_sentinel.errors import InputError, SentinelError, UnreachableError, UsageError
from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json, as_text
from tests.support.ras_sim.service import RasService, listening

pytestmark = pytest.mark.integration


@pytest.fixture
def job() -> Job:
    made = Job(3, 2, 4)
    made.run(20)
    made.world.launch("AllReduce", 4, but=(6,))
    return made


@pytest.mark.parametrize("json", [True, False])
def test_an_answer_is_fetched_and_explained(job: Job, json: bool) -> None:
    service = RasService(lambda j, v: as_json(job) if j else as_text(job, verbose=v))
    with listening(service) as port:
        data = ras_client.ask("127.0.0.1", port, json=json, deadline=5.0)
    assert [c.rank for c in explain({"poll": data}).culprits] == [6]
    assert service.commands[0] == "CLIENT PROTOCOL 2"
    assert service.commands[-1] == ("STATUS" if json else "VERBOSE STATUS")


def test_a_service_without_json_is_told_by_its_refusal(job: Job) -> None:
    service = RasService(lambda j, v: "", knows_json=False)
    with listening(service) as port, pytest.raises(InputError, match="SET FORMAT json"):
        ras_client.ask("127.0.0.1", port, deadline=5.0)


def _silent(link: socket.socket) -> None:
    link.recv(1)
    time.sleep(2.0)


def _drip(link: socket.socket) -> None:
    for _ in range(400):
        link.sendall(b"x")
        time.sleep(0.02)


def _http(link: socket.socket) -> None:
    link.recv(100)
    link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _flood(link: socket.socket) -> None:
    while True:
        link.sendall(b"x" * 65536)


def _close(link: socket.socket) -> None:
    link.recv(1)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (_silent, UnreachableError),
        (_drip, UnreachableError),
        (_http, InputError),
        (_flood, InputError),
        (_close, InputError),
    ],
)
def test_a_hostile_endpoint_ends_in_an_error_within_the_deadline(
    handler: object, error: type[SentinelError]
) -> None:
    begun = time.monotonic()
    with listening(handler) as port, pytest.raises(error):  # type: ignore[arg-type]
        ras_client.ask("127.0.0.1", port, deadline=1.0)
    assert time.monotonic() - begun < 8.0


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_client, "MOST_BYTES", 1 << 20)
    service = RasService(lambda j, v: "{" * (4 << 20))
    with listening(service) as port, pytest.raises(InputError, match="given up"):
        ras_client.ask("127.0.0.1", port, deadline=10.0)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b"])
def test_a_name_that_no_host_can_have(host: str) -> None:
    with pytest.raises(UnreachableError, match="no RAS service"):
        ras_client.ask(host, 1, deadline=1.0)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match="no RAS service"):
        ras_client.ask("127.0.0.1", port, deadline=1.0)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", ("localhost", 28028)),
        ("localhost:1234", ("localhost", 1234)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", 28028)),
        ("::1", ("::1", 28028)),
        (":77", ("localhost", 77)),
    ],
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    assert ras_client.address(text) == place


def test_a_wrong_port_is_refused() -> None:
    with pytest.raises(UsageError, match="no port"):
        ras_client.address("localhost:ras")
