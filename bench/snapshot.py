"""What the engine's snapshot costs: its size, and the time to pack and to restore it.

    python bench/snapshot.py [--ranks 1000] [--seconds 600]

A job of ``--ranks`` ranks, eight to a node, each with a GPU that tells of itself, trains for
``--seconds``; its stacks were taken twelve times. Packing holds up the coordinator's engine, once
for each segment of its event log and for each incident that is told.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import zlib
from collections.abc import Callable

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, SnapshotReceived, StacksTaken, Tick
from ray_sentinel.engine.state import unpacked
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot
from ray_sentinel.model.samples import SampleBatch, SampleSender, SeriesKey
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.store.keys import parse_key

START = 1_750_000_000.0
PER_NODE = 8
REPORT_EVERY = 4
LOOKS = 12
PLACES = tuple(
    f"function_{depth} (site-packages/library/module_{depth}.py:{depth})" for depth in range(30)
)


def gauges(node: int, second: int) -> dict[str, float]:
    """What eight GPUs and two ports of a node tell."""
    found = {}
    for gpu in range(PER_NODE):
        for name in ("power_watts", "temperature_celsius", "utilization_ratio", "clock_mhz",
                     "vram_used_bytes", "ecc_uncorrected_total", "pcie_nonfatal_total",
                     "nvlink_errors_total"):  # fmt: skip
            found[f'hw_gpu_{name}{{gpu="{gpu}"}}'] = 100.0 + (7 * second + gpu + node) % 13
        for reason in ("hw_thermal_slowdown", "sw_power_cap", "gpu_idle"):
            found[f'hw_gpu_throttle_reason{{gpu="{gpu}",reason="{reason}"}}'] = 0.0
    for port in range(2):
        for name in ("tx_bytes_total", "tx_retx_pkts_total", "rx_cnp_pkts_total", "port_state"):
            found[f'hw_rdma_{name}{{device="mlx5_{port}",port="1"}}'] = 1e6 * second
    return found


SENDERS: dict[int, SampleSender] = {}


def sampled(node: int, second: int) -> tuple[SampleBatch]:
    """The same, as an agent sends it."""
    found = ((parse_key(text), value) for text, value in gauges(node, second).items())
    values = {SeriesKey(name, tuple(labels.items())): v for (name, labels), v in found}
    sender = SENDERS.setdefault(node, SampleSender("rules", f"n{node}"))
    return (sender.batch(values, None, second),)


def rank(number: int, world: int) -> Rank:
    return Rank(
        id=RankId("job", 0, number),
        process=ProcessId(f"host{number // PER_NODE}", number, 1),
        node=f"n{number // PER_NODE}",
        world_size=world,
        gpus=(str(number % PER_NODE),),
    )


def report(node: int, second: int, world: int) -> AnyEvent:
    seen = tuple(
        RankSnapshot(
            rank=rank(number, world),
            process=ProcessState(state="S", cpu_seconds=float(second), main_switches=second),
            progress=Progress(
                step=second,
                step_ended_at=START + second,
                recent_step_seconds=(1.0,) * 32,
                steps_recorded=second,
                phase="train",
                phase_since=START,
                scalars={"loss": 2.0, "grad_norm": 1.0},
            ),
        )
        for number in range(node * PER_NODE, (node + 1) * PER_NODE)
    )
    snapshot = Snapshot(
        node=Node(id=f"n{node}", host=f"host{node}", address=f"10.0.0.{node}"),
        time=START + second,
        sequence=second,
        ranks=seen,
        samples=sampled(node, second),
    )
    return SnapshotReceived(time=START + second, snapshot=snapshot)


def stacks(second: int, world: int) -> AnyEvent:
    facts = tuple(
        StackFact(
            process=rank(number, world).process,
            signature=PLACES,
            activity="collective-wait",
            label="in all_reduce",
            waits_for_others=True,
        )
        for number in range(world)
    )
    return StacksTaken(time=START + second, incident="", round=0, facts=facts)


def trained(ranks: int, seconds: int) -> Engine:
    engine = Engine()
    for second in range(1, seconds, REPORT_EVERY):
        for node in range(ranks // PER_NODE):
            engine.handle(report(node, second, ranks))
        engine.handle(Tick(time=START + second))
    for look in range(LOOKS):
        engine.handle(stacks(seconds + look, ranks))
    return engine


def median(call: Callable[[], object], repeat: int = 5) -> float:
    """Milliseconds of a call."""
    took = []
    for _ in range(repeat):
        gc.collect()
        begun = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    engine = trained(options.ranks, options.seconds)
    state = engine.state.packed()
    small = zlib.compress(state, 1)
    print(f"{options.ranks} ranks, {options.seconds} s: {len(state) / 1e6:.1f} MB, "
          f"{len(small) / 1e6:.2f} MB in the event log")  # fmt: skip
    print(f"packed in {median(engine.state.packed):.0f} ms, "
          f"compressed in {median(lambda: zlib.compress(state, 1)):.0f} ms (on the log's thread), "
          f"restored in {median(lambda: Engine(state=unpacked(state)[0])):.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
