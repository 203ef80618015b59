"""GPUs, NVIDIA's and AMD's: work, heat, and errors."""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    BAD_FROM_ONE,
    HOST,
    Dashboard,
    Panel,
    PanelRow,
    Variable,
    graph,
    states,
    table,
)

GPU = Variable(
    name="gpu", title="GPU", query='label_values(hw_gpu_temperature_celsius{host=~"$host"}, gpu)'
)
OF = '{host=~"$host",gpu=~"$gpu"}'
EACH = "{{host}} {{gpu}}"
NVIDIA, AMD, ANY = "an NVIDIA GPU", "an AMD GPU", "a GPU"


def _of(name: str, *matchers: str) -> str:
    inner = ",".join(('host=~"$host"', 'gpu=~"$gpu"', *matchers))
    return f"{name}{{{inner}}}"


def _clock(kind: str) -> str:
    return "1e6 * " + _of("hw_gpu_clock_mhz", f'type="{kind}"')


def _grown(title: str, name: str, legend: str = EACH, hardware: str = ANY) -> Panel:
    """A counter of errors, by its growth."""
    expr = f"increase({name}{OF}[$__rate_interval])"
    return graph(title, "none", (expr, legend), steps=BAD_FROM_ONE, hardware=hardware)


WORK = PanelRow(
    "Work",
    (
        graph(
            "Utilisation",
            "percentunit",
            (_of("hw_gpu_utilization_ratio"), EACH),
            most=1.0,
            hardware=ANY,
        ),
        graph("Power", "watt", (_of("hw_gpu_power_watts"), EACH), hardware=ANY),
        graph(
            "Power, of its limit",
            "percentunit",
            (f"{_of('hw_gpu_power_watts')} / {_of('hw_gpu_power_limit_watts')}", EACH),
            about="Near idle at full utilisation: it spins in a collective, waiting for others.",
            hardware=ANY,
        ),
        graph(
            "Memory in use",
            "percentunit",
            (f"{_of('hw_gpu_vram_used_bytes')} / {_of('hw_gpu_vram_total_bytes')}", EACH),
            most=1.0,
            hardware=ANY,
        ),
        graph(
            "Memory bandwidth in use",
            "percentunit",
            (_of("hw_gpu_memory_utilization_ratio"), EACH),
            most=1.0,
            hardware=ANY,
        ),
        graph(
            "Memory of the ranks' processes",
            "bytes",
            (_of("hw_gpu_process_memory_bytes"), f"{EACH} pid {{{{pid}}}}"),
            hardware=NVIDIA,
        ),
        graph(
            "PCIe",
            "Bps",
            (_of("hw_gpu_pcie_rx_bytes_per_second"), f"{EACH} received"),
            (_of("hw_gpu_pcie_tx_bytes_per_second"), f"{EACH} sent"),
            hardware=NVIDIA,
        ),
        graph(
            "Processes",
            "none",
            ('hw_gpu_user_processes{host=~"$host"}', "{{host}}"),
            about="With a compute context: an old one that lingers holds memory.",
            hardware=ANY,
        ),
        graph(
            "Energy",
            "watt",
            (f"rate(hw_gpu_energy_joules_total{OF}[$__rate_interval])", EACH),
            about="The mean power between two looks, from the energy counter: no peak is missed.",
            hardware=ANY,
        ),
    ),
)
CLOCKS = PanelRow(
    "Heat and clocks",
    (
        graph(
            "Temperature",
            "celsius",
            (_of("hw_gpu_temperature_celsius"), EACH),
            steps=((90.0, "red"),),
            hardware=ANY,
        ),
        graph(
            "Temperature of the memory",
            "celsius",
            (_of("hw_gpu_memory_temperature_celsius"), EACH),
            steps=((95.0, "orange"), (105.0, "red")),
            hardware=ANY,
        ),
        states(
            "Slowed down",
            (
                f"max by (host, gpu, reason) ({_of('hw_gpu_throttle_reason')}) > 0",
                f"{EACH} {{{{reason}}}}",
            ),
            steps=((1.0, "orange"),),
            about="Only what holds is drawn.",
            hardware=ANY,
        ),
        graph(
            "Compute clock",
            "hertz",
            (_clock("sclk"), EACH),
            hardware=ANY,
        ),
        graph(
            "Memory clock",
            "hertz",
            (_clock("mclk"), EACH),
            hardware=ANY,
        ),
        table("Devices", 'hw_gpu_info{host=~"$host",gpu=~"$gpu"}', hardware=ANY),
    ),
)
ERRORS = PanelRow(
    "Errors",
    (
        table(
            "Xids",
            f"max by (host, gpu, xid) ({_of('hw_gpu_xid_errors_total')})",
            about="Since the node was booted.",
            hardware=NVIDIA,
        ),
        _grown("Memory errors, uncorrected", "hw_gpu_ecc_uncorrected_total"),
        graph(
            "Memory errors, corrected",
            "none",
            (f"increase(hw_gpu_ecc_corrected_total{OF}[$__rate_interval])", EACH),
            hardware=ANY,
        ),
        graph(
            "Remapped rows and retired pages",
            "none",
            (_of("hw_gpu_remapped_rows_total"), f"{EACH} {{{{cause}}}}"),
            (_of("hw_gpu_row_remap_pending"), f"{EACH} pending {{{{cause}}}}"),
            hardware=ANY,
        ),
        _grown("NVLink", "hw_gpu_nvlink_errors_total", f"{EACH} {{{{link}}}} {{{{kind}}}}", NVIDIA),
        graph(
            "GPU lines in the kernel log",
            "none",
            ('increase(hw_dmesg_gpu_errors_total{host=~"$host"}[$__rate_interval])', "{{host}}"),
            steps=BAD_FROM_ONE,
        ),
        graph(
            "PCIe, uncorrected",
            "none",
            (f"increase(hw_gpu_pcie_fatal_total{OF}[$__rate_interval])", f"{EACH} fatal"),
            (f"increase(hw_gpu_pcie_nonfatal_total{OF}[$__rate_interval])", f"{EACH} nonfatal"),
            steps=BAD_FROM_ONE,
            hardware=ANY,
        ),
        graph(
            "PCIe, corrected",
            "none",
            (f"increase(hw_gpu_pcie_correctable_total{OF}[$__rate_interval])", EACH),
            hardware=ANY,
        ),
        graph(
            "PCIe replays",
            "none",
            (f"increase(hw_gpu_pcie_replay_total{OF}[$__rate_interval])", EACH),
            hardware=ANY,
        ),
    ),
)


def _ras(kind: str, title: str, **more: object) -> Panel:
    queries = (
        (f"increase(hw_gpu_ras_{block}_{kind}_total{OF}[$__rate_interval])", f"{EACH} {block}")
        for block in ("umc", "xgmi", "gfx", "mmhub", "sdma")
    )
    return graph(title, "none", *queries, width=12, hardware=AMD, **more)


RAS = PanelRow(
    "AMD: errors by block",
    (_ras("ue", "Uncorrected", steps=BAD_FROM_ONE), _ras("ce", "Corrected")),
)

GPUS = Dashboard(
    name="gpus",
    title="GPUs",
    about="NVIDIA's and AMD's, by the same names.",
    rows=(WORK, CLOCKS, ERRORS, RAS),
    variables=(HOST, GPU),
)
