"""Cases of the rules about GPUs."""

from tests.support.alert_cases.case import WATCHED, Case, fires, quiet

GPU = {"host": "n1", "gpu": "3"}
OF_GPU = 'host="n1",gpu="3"'


def xid(number: int, host: str = "n1") -> str:
    return f'hw_gpu_xid_errors_total{{host="{host}",gpu="3",xid="{number}"}}'


def info(gpu: int | str, driver: str = "580") -> str:
    return f'hw_gpu_info{{host="n1",gpu="{gpu}",driver="{driver}"}}'


XIDS = (
    fires(
        "GpuXidCritical",
        "off the bus, for the first time",
        {xid(79): "_x20 1x40", WATCHED: "1x60"},
        {**GPU, "xid": "79"},
    ),
    fires("GpuXidCritical", "there before Prometheus", {xid(48): "2x40"}, {**GPU, "xid": "48"}),
    fires("GpuXidCritical", "once more", {xid(95): "1x200 2x9"}, {**GPU, "xid": "95"}, at="102m"),
    quiet("GpuXidCritical", "long ago", {xid(79): "1x400"}, at="180m"),
    quiet(
        "GpuXidCritical",
        "long ago, and the agent was restarted in between",
        {xid(79): "1x180 stale _x20 1x200"},
        at="110m",
    ),
    quiet("GpuXidCritical", "the program's own fault", {xid(31): "_x20 1x40", WATCHED: "1x60"}),
    fires(
        "GpuXid",
        "of no class",
        {xid(94): "_x20 1x40", WATCHED: "1x60"},
        {**GPU, "xid": "94"},
    ),
    fires(
        "GpuXid",
        "a number that nobody knows yet",
        {xid(999): "_x20 1x40", WATCHED: "1x60"},
        {**GPU, "xid": "999"},
    ),
    quiet("GpuXid", "critical: another alert says so", {xid(79): "_x20 1x40", WATCHED: "1x60"}),
    quiet("GpuXid", "of a job before ours", {xid(94): "3x60", WATCHED: "1x60"}),
    quiet("GpuXid", "an hour ago", {xid(94): "_x20 1x400", WATCHED: "1x400"}, at="70m"),
    fires(
        "GpuXidApplication",
        "a page fault",
        {xid(31): "_x20 1x40", WATCHED: "1x60"},
        {**GPU, "xid": "31"},
    ),
    fires(
        "GpuXidApplication",
        "a second one",
        {xid(13): "1x25 2x40", WATCHED: "1x60"},
        {**GPU, "xid": "13"},
    ),
    quiet("GpuXidApplication", "of a job before ours", {xid(43): "3x60", WATCHED: "1x60"}),
)
MEMORY = (
    fires(
        "GpuEccUncorrected",
        "one more",
        {f"hw_gpu_ecc_uncorrected_total{{{OF_GPU}}}": "7x20 8x40"},
        GPU,
    ),
    quiet(
        "GpuEccUncorrected",
        "those of the card's whole life",
        {f"hw_gpu_ecc_uncorrected_total{{{OF_GPU}}}": "7x60"},
    ),
    fires(
        "GpuEccCorrectedOften",
        "ten a minute",
        {f"hw_gpu_ecc_corrected_total{{{OF_GPU}}}": "0+5x200"},
        GPU,
        at="70m",
    ),
    quiet(
        "GpuEccCorrectedOften",
        "one a minute",
        {f"hw_gpu_ecc_corrected_total{{{OF_GPU}}}": "0+0.5x200"},
        at="70m",
    ),
    fires(
        "GpuRasUncorrected",
        "two blocks of one card",
        {
            f"hw_gpu_ras_umc_ue_total{{{OF_GPU}}}": "0x20 1x40",
            f"hw_gpu_ras_sdma_ue_total{{{OF_GPU}}}": "0x20 1x40",
            f"hw_gpu_ras_gfx_ue_total{{{OF_GPU}}}": "0x60",
        },
        {**GPU, "block": "umc"},
        {**GPU, "block": "sdma"},
    ),
    quiet(
        "GpuRasUncorrected",
        "corrected ones, and old ones",
        {
            f"hw_gpu_ras_umc_ce_total{{{OF_GPU}}}": "0+1x60",
            f"hw_gpu_ras_xgmi_ue_total{{{OF_GPU}}}": "4x60",
        },
    ),
    fires(
        "GpuRowRemapFailed",
        "no spare rows",
        {f'hw_gpu_row_remap_pending{{{OF_GPU},cause="failure"}}': "1x60"},
        {**GPU, "cause": "failure"},
    ),
    quiet(
        "GpuRowRemapFailed",
        "one that only waits",
        {
            f'hw_gpu_row_remap_pending{{{OF_GPU},cause="failure"}}': "0x60",
            f'hw_gpu_row_remap_pending{{{OF_GPU},cause="any"}}': "1x60",
        },
    ),
    fires(
        "GpuRowRemapPending",
        "NVIDIA's and AMD's",
        {
            f'hw_gpu_row_remap_pending{{{OF_GPU},cause="any"}}': "1x60",
            'hw_gpu_row_remap_pending{host="n2",gpu="0",cause="bad_page"}': "2x60",
        },
        {**GPU, "cause": "any"},
        {"host": "n2", "gpu": "0", "cause": "bad_page"},
    ),
    quiet(
        "GpuRowRemapPending",
        "none",
        {f'hw_gpu_row_remap_pending{{{OF_GPU},cause="any"}}': "0x60"},
    ),
)
BUS = (
    fires("GpuLost", "one of two", {info(0): "1x60", info(1): "1x20 stale"}, {"host": "n1"}),
    quiet("GpuLost", "all are there", {info(0): "1x60", info(1): "1x60"}),
    quiet("GpuLost", "a new driver", {info(0): "1x20 stale", info(0, "590"): "_x20 1x40"}),
    quiet("GpuLost", "a MIG device is gone", {info(0): "1x60", info("0:1"): "1x20 stale"}),
    quiet("GpuLost", "the collector has nothing at all", {info(0): "1x20 stale"}),
    fires("GpuPcieFatal", "one", {f"hw_gpu_pcie_fatal_total{{{OF_GPU}}}": "0x20 1x40"}, GPU),
    quiet("GpuPcieFatal", "none new", {f"hw_gpu_pcie_fatal_total{{{OF_GPU}}}": "1x60"}),
    fires("GpuPcieNonfatal", "one", {f"hw_gpu_pcie_nonfatal_total{{{OF_GPU}}}": "0x20 1x40"}, GPU),
    quiet("GpuPcieNonfatal", "none new", {f"hw_gpu_pcie_nonfatal_total{{{OF_GPU}}}": "9x60"}),
    fires(
        "GpuPcieReplaysOften",
        "ten a minute",
        {f"hw_gpu_pcie_replay_total{{{OF_GPU}}}": "0+5x200"},
        GPU,
        at="70m",
    ),
    quiet(
        "GpuPcieReplaysOften",
        "one in ten minutes",
        {f"hw_gpu_pcie_replay_total{{{OF_GPU}}}": "0+0.05x200"},
        at="70m",
    ),
    fires(
        "GpuNvlinkErrors",
        "a recovery",
        {f'hw_gpu_nvlink_errors_total{{{OF_GPU},link="5",kind="recovery"}}': "0x20 1x40"},
        {**GPU, "link": "5"},
    ),
    quiet(
        "GpuNvlinkErrors",
        "replays are everyday life",
        {f'hw_gpu_nvlink_errors_total{{{OF_GPU},link="5",kind="replay"}}': "0+1x60"},
    ),
)
HEAT = (
    fires("GpuHot", "for long", {f"hw_gpu_temperature_celsius{{{OF_GPU}}}": "95x60"}, GPU),
    quiet("GpuHot", "a peak", {f"hw_gpu_temperature_celsius{{{OF_GPU}}}": "70x25 95x3 70x20"}),
    quiet("GpuHot", "warm", {f"hw_gpu_temperature_celsius{{{OF_GPU}}}": "88x60"}),
    fires(
        "GpuThrottledByHeat",
        "hardware",
        {f'hw_gpu_throttle_reason{{{OF_GPU},reason="hw_thermal_slowdown"}}': "1x60"},
        {**GPU, "reason": "hw_thermal_slowdown"},
    ),
    quiet(
        "GpuThrottledByHeat",
        "the power cap is everyday life",
        {
            f'hw_gpu_throttle_reason{{{OF_GPU},reason="sw_power_cap"}}': "1x60",
            f'hw_gpu_throttle_reason{{{OF_GPU},reason="hw_thermal_slowdown"}}': "0x60",
        },
    ),
)

CASES: tuple[Case, ...] = (*XIDS, *MEMORY, *BUS, *HEAT)
