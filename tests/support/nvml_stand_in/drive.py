"""Runs the NVML collector in a process of its own: one collection a line on stdin, JSON out.

Arguments: PROC SYS DEV STATE, then the ranks' pids.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from ray_sentinel.api import Context, Event, Sample, Skip
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel_plugins.nvml import NvmlCollector, NvmlOptions


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    proc, sys_root, dev, state, *pids = sys.argv[1:]
    ranks = tuple(
        Rank(id=RankId("job", 0, i), process=ProcessId("host", int(pid)), node="n")
        for i, pid in enumerate(pids)
    )
    context = Context(
        proc=Path(proc),
        sys=Path(sys_root),
        dev=Path(dev),
        state_dir=Path(state),
        ranks=ranks,
        options=NvmlOptions(dear_interval=3600.0),
    )
    try:
        collector = NvmlCollector(context)
    except Skip as reason:
        print(json.dumps({"skip": str(reason)}), flush=True)
        return
    for _ in sys.stdin:
        series = {}
        events = []
        for item in collector.collect():
            if isinstance(item, Sample):
                labels = ",".join(f'{key}="{value}"' for key, value in item.labels)
                series[f"{item.name}{{{labels}}}" if labels else item.name] = item.value
            elif isinstance(item, Event):
                events.append({"kind": item.kind, "attributes": item.attributes})
        print(json.dumps({"series": series, "events": events}), flush=True)
    collector.close()


if __name__ == "__main__":
    main()
