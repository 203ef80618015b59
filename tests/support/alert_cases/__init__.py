"""Series under which each alert rule must fire, and those under which it must not."""

from tests.support.alert_cases import gpu, host, network, sentinel, training
from tests.support.alert_cases.case import Case

CASES: tuple[Case, ...] = (
    *sentinel.CASES,
    *training.CASES,
    *gpu.CASES,
    *network.CASES,
    *host.CASES,
)
