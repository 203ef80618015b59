"""Stands in for Ray's dashboard agent on nodes of tests that ask nothing of it.

Ray's own takes more processor seconds to start than all else of a node, for metrics, logs and jobs
of a dashboard. A raylet ends without an agent, and waits for its ports: -1 says, as where Ray is
installed without its dashboard, that nothing is served. The file's name is that of Ray's.
"""

from __future__ import annotations

import argparse
import os
import select
from pathlib import Path

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")


def main() -> None:
    """Tell the ports, and stay for as long as the raylet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--session-dir", type=Path, required=True)
    parser.add_argument("--node-id", required=True)
    told, _ = parser.parse_known_args()
    raylet = os.pidfd_open(os.getppid())
    for name in PORTS:
        file: Path = told.session_dir / f"{name}_{told.node_id}"
        part = file.with_name(f"{file.name}.part")
        part.write_text("-1")
        part.rename(file)
    select.select([raylet], [], [])


if __name__ == "__main__":
    main()
