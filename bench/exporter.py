"""Scrapes of :9400 beside node_exporter, in one run, at equal series, each with a wedged source.

    python bench/exporter.py [--series 5000] [--scrapes 500] [--node-exporter PATH]

Both read the same file of series (node_exporter as a text file, ours through a script plugin)
beside what they collect themselves, until both serve the same number. Then each is scraped in turn.
Then a source of each is wedged: both are told to read a FIFO that nobody writes to. CPU is the
server's own process; ours collects beside the scrapes, so what its collectors take is given
separately. "floor" is a process that only writes as many bytes back: what the machine itself adds.
Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from processes import children, cpu_seconds, own_cpu_seconds, pss_bytes

from ray_sentinel.demo.cluster import free_port

FLOOR = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
body = bytes(int(sys.argv[2]))
head = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
while True:
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(65536):
        connection.sendall(head + body)
"""
AGENT = """
import sys, time
from pathlib import Path
from ray_sentinel.collect.runner import Runner, RunnerSettings
from ray_sentinel.config import Config
from ray_sentinel_exporters.prometheus import PrometheusExporter
folder, port = Path(sys.argv[1]), int(sys.argv[2])
exporter = PrometheusExporter("bench", "127.0.0.1", PrometheusExporter.Options(port=port))
exporter.start()
runner = Runner(
    RunnerSettings(host="bench", run_dir=folder / "run", plugin_dirs=(folder / "plugins",)),
    Config(collectors={"series": {"deadline": 5}, "wedged": {"interval": 2, "deadline": 2}}),
    on_events=lambda events: None,
)
runner.start()
while True:
    time.sleep(1.0)
    exporter.publish(runner.families)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=5000)
    parser.add_argument("--scrapes", type=int, default=500)
    parser.add_argument("--node-exporter", default=shutil.which("prometheus-node-exporter"))
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {"ray_sentinel": stack.enter_context(_ours(folder / "ours"))}
        if args.node_exporter:
            theirs = _node_exporter(folder / "theirs", args.node_exporter)
            servers["node_exporter"] = stack.enter_context(theirs)
        for server in servers.values():
            server.fill(args.series)
        scraped = {"floor": stack.enter_context(_floor(len(servers["ray_sentinel"].scrape())))}
        scraped.update(servers)
        report: dict[str, Any] = {"healthy": _compare(scraped, args.scrapes)}
        for server in servers.values():
            server.wedge()
        time.sleep(5)
        report["one source wedged"] = _compare(scraped, args.scrapes)
    print(json.dumps(report, indent=2))


class ExporterProcess:
    """One exporter under test, whose extra series come from ``file``."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, file: Path) -> None:
        self.process, self._file = process, file
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def scrape(self) -> bytes:
        """The exposition, packed; raises OSError if none comes within ten seconds."""
        self._connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return body

    def fill(self, series: int) -> None:
        """Add series until ``series`` are served."""
        self._write([])
        own = self.until(lambda count: count > 20)
        self._write(
            [f'bench_value{{device="card{i}",port="1"}} {i}.5' for i in range(series - own)]
        )
        self.until(lambda count: abs(count - series) <= series // 50)

    def wedge(self) -> None:
        """Have it read from a FIFO to which nobody writes."""
        raise NotImplementedError

    def _write(self, lines: list[str]) -> None:
        part = self._file.with_suffix(".part")
        part.write_text("\n".join(["# TYPE bench_value gauge", *lines, ""]))
        part.rename(self._file)

    def until(self, wanted: Callable[[int], bool]) -> int:
        """Scrape until the number of series is ``wanted``, and return it. Raises SystemExit if it
        is not within a minute."""
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if wanted(count := _series(self.scrape())):
                    return count
            if time.monotonic() > end:
                raise SystemExit(f"{self.process.args!r:.80} does not serve what it should")
            self._connection.close()
            time.sleep(0.5)


class Ours(ExporterProcess):
    """The runner with its exporter."""

    def wedge(self) -> None:
        """Add a collector that reads from a FIFO to which nobody writes."""
        plugins = self._file.parent / "plugins"
        os.mkfifo(self._file.parent / "fifo")
        (plugins / "wedged.py").write_text(
            "from ray_sentinel.api import Collector\n"
            "class W(Collector):\n    name = 'wedged'\n    def collect(self):\n"
            f"        open({str(self._file.parent / 'fifo')!r}).read()\n        return ()\n"
        )


class NodeExporter(ExporterProcess):
    """Debian's node_exporter."""

    def wedge(self) -> None:
        """Add a text file that is a FIFO to which nobody writes."""
        os.mkfifo(self._file.parent / "wedged.prom")


@contextlib.contextmanager
def _ours(folder: Path) -> Iterator[ExporterProcess]:
    (folder / "plugins").mkdir(parents=True)
    file = folder / "series.prom"
    file.write_text("")
    script = folder / "plugins" / "series.sh"
    script.write_text(f"#!/bin/sh\ncat {file}\n")
    script.chmod(0o755)
    port = free_port()
    with _running([sys.executable, "-c", AGENT, str(folder), str(port)]) as process:
        yield Ours(process, port, file)


@contextlib.contextmanager
def _node_exporter(folder: Path, program: str) -> Iterator[ExporterProcess]:
    folder.mkdir()
    port = free_port()
    command = [
        program,
        f"--web.listen-address=127.0.0.1:{port}",
        f"--collector.textfile.directory={folder}",
    ]
    with _running(command) as process:
        yield NodeExporter(process, port, folder / "series.prom")


@contextlib.contextmanager
def _floor(size: int) -> Iterator[ExporterProcess]:
    port = free_port()
    with _running([sys.executable, "-c", FLOOR, str(port), str(size)]) as process:
        server = ExporterProcess(process, port, Path())
        server.until(lambda count: True)
        yield server


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


def _compare(
    servers: dict[str, ExporterProcess], scrapes: int, seconds: float = 60.0
) -> dict[str, dict[str, Any]]:
    """Scrape each in turn; one that does not answer is not asked again in this round."""
    times: dict[str, list[float]] = {name: [] for name in servers}
    errors: dict[str, str] = {}
    cpu = {name: _cpu(server) for name, server in servers.items()}
    end = time.monotonic() + seconds
    for _ in range(scrapes):
        for name, server in servers.items():
            if name in errors:
                continue
            begin = time.perf_counter()
            try:
                server.scrape()
            except (OSError, http.client.HTTPException) as error:
                errors[name] = f"{type(error).__name__}: {error}"
            times[name].append(time.perf_counter() - begin)
        if time.monotonic() > end:
            break
    return {
        name: _row(server, times[name], cpu[name], errors.get(name, ""))
        for name, server in servers.items()
    }


def _row(
    server: ExporterProcess, times: list[float], before: tuple[float, float], error: str
) -> dict[str, Any]:
    if error:
        return {"answers": False, "error": error, "after_seconds": round(times[-1], 1)}
    own, collectors = (now - then for now, then in zip(_cpu(server), before, strict=True))
    return {
        "answers": True,
        "scrapes": len(times),
        "series": _series(server.scrape()),
        "p50_ms": round(1000 * statistics.median(times), 3),
        "p99_ms": round(1000 * statistics.quantiles(times, n=100)[98], 3),
        "max_ms": round(1000 * max(times), 3),
        "server_cpu_ms_per_scrape": round(1000 * own / len(times), 3),
        "collectors_cpu_ms_per_scrape": round(1000 * collectors / len(times), 3),
        "pss_mebibytes": round(pss_bytes(server.process.pid) / 2**20, 1),
    }


def _cpu(server: ExporterProcess) -> tuple[float, float]:
    """CPU seconds of the server's process, and of its children."""
    pid = server.process.pid
    return own_cpu_seconds(pid), sum(cpu_seconds(child) for child in children(pid))


def _series(packed: bytes) -> int:
    if packed[:2] != b"\x1f\x8b":
        return 0
    lines = gzip.decompress(packed).splitlines()
    return sum(1 for line in lines if line and not line.startswith(b"#"))


if __name__ == "__main__":
    main()
