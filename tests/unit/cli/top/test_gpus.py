"""GPUs as the nodes' own endpoints tell of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from ray_sentinel.cli.top.gpus import GpuAsker, GpuSight, gpu_sights
from ray_sentinel.model.status import Status
from tests.support.page_data import status
from tests.support.top_screen import TopScreen, drawn, served_page

TOLD = """\
# HELP hw_gpu_utilization_ratio Share of time in which a kernel ran, 0 to 1.
# TYPE hw_gpu_utilization_ratio gauge
hw_gpu_utilization_ratio{host="node-0",gpu="10"} 0.25
hw_gpu_utilization_ratio{host="node-0",gpu="2"} 0.97
hw_gpu_vram_used_bytes{host="node-0",gpu="2"} 6.8719476736e+10
hw_gpu_vram_total_bytes{host="node-0",gpu="2"} 8.589934592e+10
hw_gpu_power_watts{host="node-0",gpu="2"} 612.5
hw_gpu_power_limit_watts{host="node-0",gpu="2"} 700
hw_gpu_temperature_celsius{host="node-0",gpu="2"} 88
hw_gpu_info{host="node-0",gpu="2",uuid="u",name="NVIDIA H100 [red]",vendor="nvidia"} 1
hw_cpu_seconds_total{host="node-0"} 5
hw_gpu_utilization_ratio{host="node-0",gpu="2"
"""


class Told(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(TOLD.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: it would stand between the tests."""


@pytest.fixture
def node() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def test_gpus_are_read_in_order_and_what_is_not_told_is_absent() -> None:
    second, tenth = gpu_sights(TOLD)
    assert second == GpuSight(
        gpu="2",
        name="NVIDIA H100 [red]",
        utilization=0.97,
        used=64 * 2.0**30,
        total=80 * 2.0**30,
        watts=612.5,
        watts_limit=700.0,
        celsius=88.0,
    )
    assert tenth == GpuSight(gpu="10", utilization=0.25)


@pytest.mark.parametrize(
    "text", ["", "\0", "hw_gpu_info", 'hw_gpu_info{gpu="²"} 1', 'hw_gpu_power_watts{gpu=""} NaN']
)
def test_what_is_no_exposition_is_no_error(text: str) -> None:
    assert len(gpu_sights(text)) <= 1


def test_the_nodes_in_sight_are_asked_and_one_that_is_silent_is_told(node: str) -> None:
    asker = GpuAsker()
    nowhere = "http://127.0.0.1:1/metrics"

    def told() -> Status:
        first, second = status().nodes
        first = msgspec.structs.replace(first, metrics_url=node)
        second = msgspec.structs.replace(second, metrics_url=nowhere)
        return msgspec.structs.replace(status(), nodes=(first, second))

    async def see(screen: TopScreen) -> tuple[str, str]:
        before = await screen.press("4")
        asker.ask_once()
        return before, await screen.look()

    with served_page(told) as (found, _):
        before, after = drawn(found, see, size=(120, 30), gpus=asker)
    asker.close()
    assert "asking" in before
    assert set(asker.told) == {node, nowhere}
    (row,) = [line for line in after.splitlines() if "97%" in line]
    for word in ("node-0", "64.0/80 GiB", "612/700 W", "88 °C", "NVIDIA H100 [red]"):
        assert word in row
    (silent,) = [line for line in after.splitlines() if "node-1 " in line and "127.0.0.1:1" in line]
    assert "-" in silent
