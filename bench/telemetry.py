"""What the telemetry rules cost: an evaluation with all rules on, at 8, 512 and 8,192 ranks.

    python bench/telemetry.py

Prints, for each size: the time of one second's snapshots (with series every fifth second, as agents
send them), and of a tick in which all telemetry rules are evaluated, at the median and the worst.
"""

from __future__ import annotations

import statistics
import time

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived, Tick
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot
from ray_sentinel.model.samples import SampleBatch, SampleSender, SeriesKey
from ray_sentinel.store.keys import parse_key

PER_NODE = 8
SECONDS = 150
START = 1_750_000_000.0


def gauges(second: int) -> dict[str, float]:
    """What an agent of a node with eight GPUs and eight RDMA ports sends."""
    found: dict[str, float] = {}
    for gpu in range(PER_NODE):
        label = f'gpu="{gpu}"'
        found[f'hw_gpu_info{{{label},name="NVIDIA H100 80GB HBM3"}}'] = 1.0
        found[f"hw_gpu_utilization_ratio{{{label}}}"] = 1.0
        found[f"hw_gpu_power_watts{{{label}}}"] = 600.0 + (second * 7 + gpu) % 13
        found[f"hw_gpu_temperature_celsius{{{label}}}"] = 60.0
        found[f'hw_gpu_clock_mhz{{{label},type="sclk"}}'] = 1980.0
        found[f"hw_gpu_vram_used_bytes{{{label}}}"] = 6e10
        for reason in ("hw_thermal_slowdown", "sw_power_cap", "gpu_idle", "hw_slowdown"):
            found[f'hw_gpu_throttle_reason{{{label},reason="{reason}"}}'] = 0.0
        found[f"hw_gpu_ecc_uncorrected_total{{{label}}}"] = 3.0
        port = f'device="mlx5_{gpu}",port="1"'
        for name in ("tx_retx_pkts", "tx_ack_timeout", "rx_cnp_pkts", "tx_bytes"):
            found[f"hw_rdma_{name}_total{{{port}}}"] = 1e6 + second
        found[f"hw_rdma_port_state{{{port}}}"] = 1.0
    found |= {"hw_procs_running": 20.0, "hw_mem_total_bytes": 1e12, "hw_mem_available_bytes": 5e11}
    return found


SENDERS: dict[int, SampleSender] = {}
KEYS: dict[str, SeriesKey] = {}


def sampled(node: int, second: int) -> tuple[SampleBatch]:
    """The same, as an agent sends it."""
    found = gauges(second)
    for text in found.keys() - KEYS.keys():
        name, labels = parse_key(text)
        KEYS[text] = SeriesKey(name, tuple(labels.items()))
    values = {KEYS[text]: value for text, value in found.items()}
    sender = SENDERS.setdefault(node, SampleSender("rules", f"n{node}"))
    return (sender.batch(values, None, second),)


def snapshot(node: int, second: int, ranks: int) -> Snapshot:
    name = f"n{node}"
    return Snapshot(
        node=Node(id=name, host=name, address=""),
        time=START + second,
        sequence=second,
        ranks=tuple(
            RankSnapshot(
                rank=Rank(
                    id=RankId("job", 0, number),
                    process=ProcessId(name, number),
                    node=name,
                    world_size=ranks,
                    gpus=(str(number % PER_NODE),),
                ),
                process=ProcessState(state="S"),
                progress=Progress(
                    step=second,
                    step_ended_at=START + second,
                    recent_step_seconds=(1.0,) * 16,
                    steps_recorded=second,
                    phase="train",
                    phase_since=START,
                    scalars={"loss": 2.0},
                ),
            )
            for number in range(node * PER_NODE, (node + 1) * PER_NODE)
        ),
        samples=sampled(node, second) if (second + node) % 5 == 0 else (),
    )


def measure(ranks: int, seconds: int) -> None:
    engine = Engine()
    taking, ticking = [], []
    for second in range(1, seconds):
        reports = [snapshot(node, second, ranks) for node in range(max(1, ranks // PER_NODE))]
        begun = time.perf_counter()
        for report in reports:
            engine.handle(SnapshotReceived(time=START + second, snapshot=report))
        between = time.perf_counter()
        engine.handle(Tick(time=START + second))
        ticking.append(time.perf_counter() - between)
        taking.append(between - begun)
    # One tick in five looks at telemetry: those are the dear ones.
    dear = sorted(ticking[seconds // 2 :])[-seconds // 10 :]
    print(
        f"{ranks:6} ranks: snapshots of a second {1000 * statistics.median(taking):8.1f} ms; "
        f"tick with telemetry {1000 * statistics.median(dear):8.1f} ms, "
        f"worst {1000 * max(ticking):8.1f} ms"
    )


if __name__ == "__main__":
    for size, length in ((8, SECONDS), (512, SECONDS), (8192, 60)):
        measure(size, length)
