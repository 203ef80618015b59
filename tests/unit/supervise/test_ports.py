"""Ports of launchers."""

from __future__ import annotations

import pytest

from ray_sentinel.cleanup_check import ports_of


@pytest.mark.parametrize(
    ("argv", "environ", "ports"),
    [
        (["torchrun", "--master-port", "29501", "t.py"], {}, (29501,)),
        (["torchrun", "--master_port=29501"], {"MASTER_PORT": "7"}, (29501,)),
        (["torchrun", "--rdzv-endpoint=localhost:29400"], {}, (29400,)),
        (["torchrun", "--rdzv-endpoint=other:29400"], {"MASTER_PORT": "7"}, (7,)),
        (["python", "t.py"], {"MASTER_PORT": "29500"}, (29500,)),
        (["torchrun", "--master-port"], {}, ()),
        (["torchrun", "--master-port", "0"], {}, ()),
        (["torchrun", "--master-port", "1" * 5000], {}, ()),
        (["python", "t.py"], {}, ()),
    ],
)
def test_ports_of(argv: list[str], environ: dict[str, str], ports: tuple[int, ...]) -> None:
    assert ports_of(argv, environ) == ports
