"""Lines of the GPU drivers: NVRM and nvidia-nvswitch of NVIDIA, amdgpu and xgmi of AMD."""

from __future__ import annotations

from ray_sentinel_plugins._kernel_log.patterns import PCI, WARNING, Pattern, row

LOST = "kernel.gpu_lost"
XID = "kernel.xid"

_AMD = rf"amdgpu(?: {PCI})?\b"
# Whole words: the registers that are dumped after a fault are called WALKER_ERROR and the like.
_FAILURE = (
    r"(?i:\berrors?\b|\bfaults?\b|\bfail(?:ed|ure|s)?\b|\btime(?:d )?out\b|\bhang\b|\blost\b"
    r"|\bcorrupt(?:ed|ion)?\b|\bmismatch\b)"
)

NVIDIA: tuple[Pattern, ...] = (
    row(
        XID,
        "NVRM: Xid",
        rf"NVRM: Xid \((?:PCI:)?{PCI}[^)]*\): (?P<xid>\d{{1,6}})",
        r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name=(?P<comm>[^,]*))?",
        counted="gpu",
    ),
    row(
        "kernel.sxid",
        "SXid",
        rf"(?P<device>nvidia-nvswitch\d+): SXid \(PCI:{PCI}\): (?P<sxid>\d{{1,7}})",
        counted="gpu",
    ),
    row(
        LOST,
        "fallen off the bus",
        rf"NVRM: (?:.*?{PCI})?.*fallen off the bus",
        counted="gpu",
        severity="critical",
    ),
    row(
        "kernel.nvrm",
        "NVRM:",
        rf"NVRM: (?:.*?{PCI})?.*",
        _FAILURE,
        # The checks of nvassert.h in NVIDIA's open modules tell of a call that failed, not of the
        # device: cuda-gdb causes four of them whenever it attaches.
        unless=r"NVRM: (?:loading|GPU at |nv(?:Assert|Check)\w*Failed\w*: )",
        counted="gpu",
    ),
    row(
        "kernel.nvrm",
        "nvidia",
        r"\bnvidia[\w-]*: .*(?:ERROR|[Ff]ailed)",
        counted="gpu",
        level=WARNING,
    ),
)

AMD: tuple[Pattern, ...] = (
    row(
        "kernel.amdgpu.ras",
        "ncorrectable hardware error",
        _AMD,
        r".*?(?P<what>[Uu]ncorrectable hardware errors?)",
        unless=r"\b0 (?:new )?[Uu]ncorrectable hardware error",
        counted="gpu",
        severity="critical",
    ),
    row(
        "kernel.amdgpu.ras",
        "correctable hardware error",
        _AMD,
        r".*?\b(?P<count>[1-9]\d*) (?P<what>(?:new )?correctable hardware errors?)",
        r"(?:.*? in (?P<block>\w+) block)?",
        counted="gpu",
        severity="warning",
    ),
    row(
        "kernel.amdgpu.ring_timeout",
        "timeout",
        rf"(?:{_AMD}|\[drm:amdgpu_job_timedout).*\bring (?P<ring>\S+) timeout",
        counted="gpu",
    ),
    row(
        "kernel.amdgpu.page_fault",
        "page fault",
        _AMD,
        r".*page fault(?:.*?ring:(?P<ring>\d+))?(?:.*?vmid:(?P<vmid>\d+))?",
        counted="gpu",
    ),
    row(
        "kernel.amdgpu.reset",
        "eset",
        _AMD,
        r".*(?P<what>GPU reset(?:\(\d+\))? (?:begin|failed|end with ret)",
        r"|[Rr]ing (?P<ring>\S+) reset failed)",
        counted="gpu",
    ),
    row(
        "kernel.amdgpu.recovered",
        "eset",
        _AMD,
        r".*(?P<what>GPU reset(?:\(\d+\))? succeeded|[Rr]ing (?P<ring>\S+) reset succe)",
        severity="info",
    ),
    row("kernel.amdgpu.cper", "_", r"\b(?P<function>(?:amdgpu_cper|aca_sysfs)_\w+)", counted="gpu"),
    row("kernel.amdgpu.xgmi", "xgmi", r"xgmi.*", _FAILURE, counted="gpu", level=WARNING),
    row(
        "kernel.amdgpu",
        "amdgpu",
        rf"(?:{_AMD}|\[drm:\w+ \[amdgpu\]\]).*(?:{_FAILURE}",
        r"|SMU: I'm not done|HW Exception|\*ERROR\*)",
        unless=r" 0 (?:new )?\w+ hardware errors",
        counted="gpu",
        level=WARNING,
    ),
)
