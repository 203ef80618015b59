"""The one table of limits for faults of GPUs, networks and hosts.

The engine's rules, the alert rules and dashboards (``make generated``), the diagnosis, the doctor
and the health report take their limits from here, so that one value gets one answer from all of
them. A user's ``[rules."NAME"]`` overrides what the engine's rules take; the alert rules that are
shipped keep the values of the table.

Counters count within ``seconds``: earlier counts are the machine's history. A limit relative to the
peers or to what is usual accompanies an absolute one if each sees what the other cannot: a
comparison needs peers or a history, an absolute limit ignores the load.

The values here say from where on a device, a host or a network is in trouble. How a reader detects
that stays with the reader: over how much time it smooths, how many samples or peers it needs, how
far a level must exceed its own noise, which level of what it smoothed means work or rest.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FaultSeverity = Literal["critical", "warning"]


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One limit."""

    families: tuple[str, ...]
    """The metric families that it is about (docs/metrics.md); none where only the doctor measures
    it."""
    unit: str
    limit: float
    """The value that must be reached, or passed: see ``comparison``."""
    comparison: Literal[">=", ">", "<"] = ">="
    severity: FaultSeverity = "warning"
    """With "critical", the job stops, or computes wrong results."""
    seconds: float = 0.0
    """Seconds for which a level must hold, or the window in which a counter must grow by ``limit``.
    """
    page_seconds: float = 0.0
    """Seconds that the alert rule waits (``for``), where that is longer: it wakes somebody up, and
    a line in ``status`` does not."""
    phrase: str
    """What reaching it means, for people."""
    source: str
    """Where the limit comes from: the vendor's document, or the reasoning."""

    def crossed(self, value: float) -> bool:
        """Whether a value is beyond the limit. NaN never is."""
        if self.comparison == "<":
            return value < self.limit
        return value > self.limit if self.comparison == ">" else value >= self.limit


OVER_PEERS = 5.0
"""So many times what the peers have, beside each limit of a counter that says so: where all of them
count some, some are background."""

# GPUs: heat

GPU_HOT = Threshold(
    families=("hw_gpu_temperature_celsius",),
    unit="°C",
    limit=90.0,
    comparison=">",
    seconds=120.0,
    page_seconds=120.0,
    phrase="hotter than a GPU should be under any load",
    source="NVIDIA's data-centre GPUs slow down from 85 to 95 °C by model (`nvidia-smi -q -d "
    "TEMPERATURE`), AMD's Instinct at 100 °C of the junction (hwmon temp2_crit); less than two "
    "minutes is a peak of load",
)
GPU_NEAR_THROTTLING = Threshold(
    families=("hw_gpu_temperature_celsius",),
    unit="°C",
    limit=95.0,
    seconds=120.0,
    phrase="throttles, or soon will",
    source="the top of NVIDIA's slowdown temperatures, 5 °C below AMD's",
)
GPU_MEMORY_WARM = Threshold(
    families=("hw_gpu_memory_temperature_celsius",),
    unit="°C",
    limit=95.0,
    phrase="near the limit of HBM",
    source="NVIDIA states 95 °C as the highest operating temperature of A100's and H100's memory",
)
GPU_MEMORY_HOT = Threshold(
    families=("hw_gpu_memory_temperature_celsius",),
    unit="°C",
    limit=105.0,
    phrase="at the limit of HBM",
    source="HBM refreshes at twice the rate from 85 °C and is specified to 105 °C (JEDEC JESD235)",
)
GPU_HOTTER_THAN_PEERS = Threshold(
    families=("hw_gpu_temperature_celsius",),
    unit="°C above the peers' median",
    limit=15.0,
    comparison=">",
    seconds=120.0,
    phrase="much hotter than its peers in the same job",
    source="reasoning: live, with no history, places in one chassis differ by up to 10 °C",
)
GPU_HOTTER_THAN_USUAL = Threshold(
    families=("hw_gpu_temperature_celsius",),
    unit="°C above its usual distance to the peers",
    limit=6.0,
    phrase="hotter than its load explains",
    source="reasoning: over a whole job the usual distance is known, and what load and room do to "
    "all cards is taken off",
)
GPU_WARMER_THAN_USUAL = Threshold(
    families=("hw_gpu_temperature_celsius", "hw_gpu_clock_mhz"),
    unit="°C above its usual distance to the peers",
    limit=2.5,
    phrase="a little warmer, which counts where its clock fell at the same time",
    source="reasoning: at the limit a few degrees cost clock; without that they are the room's",
)
GPU_WARM_FOR_OUTLIER = Threshold(
    families=("hw_gpu_temperature_celsius",),
    unit="°C",
    limit=75.0,
    comparison=">",
    seconds=120.0,
    phrase="warm enough for a difference to matter",
    source="reasoning: 15 °C below the limit for all",
)
GPU_THROTTLED = Threshold(
    families=("hw_gpu_throttle_reason",),
    unit="share of the time",
    limit=0.5,
    seconds=60.0,
    page_seconds=300.0,
    phrase="clocks are held down for heat, current, or for want of power",
    source="NVML's clocks event reasons and amdgpu's throttler status; the everyday power cap and "
    "idle clocks are left out",
)
THROTTLE_REASONS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "sw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "thermal",
    "current",
    "prochot",
)
"""Reasons for throttling: NVIDIA's, then AMD's. AMD's "power" is the everyday cap."""
GPU_CLOCK_BELOW_PEERS = Threshold(
    families=("hw_gpu_clock_mhz",),
    unit="of the peers' median",
    limit=0.85,
    comparison="<",
    seconds=120.0,
    phrase="clocked well below its peers",
    source="reasoning: two minutes of a live job; boost clocks of equal cards differ by some 5 %",
)
GPU_CLOCK_DROP = Threshold(
    families=("hw_gpu_clock_mhz",),
    unit="of its usual clock",
    limit=0.04,
    phrase="clock fell against its own usual distance to the peers",
    source="reasoning: over a whole job the usual distance is known, and smaller steps show",
)
GPU_CLOCKS_DROP = Threshold(
    families=("hw_gpu_clock_mhz",),
    unit="of the usual clock",
    limit=0.1,
    phrase="the clocks of all cards fell together",
    source="reasoning: no peer shows it, and a heavier load takes a little from all of them",
)
GPU_CLOCK_OUT_OF_LINE = Threshold(
    families=("hw_gpu_clock_mhz",),
    unit="of the usual clock",
    limit=0.06,
    phrase="another clock than the other cards have, throughout the job",
    source="reasoning: boost clocks of equal cards differ by some 5 %",
)
GPU_POWER_BELOW_PEERS = Threshold(
    families=("hw_gpu_power_watts",),
    unit="of the peers' median",
    limit=0.75,
    comparison="<",
    seconds=120.0,
    phrase="draws much less than its peers",
    source="reasoning: two minutes of a live job, whose parts differ in load",
)
GPU_POWER_DROP = Threshold(
    families=("hw_gpu_power_watts",),
    unit="of its usual power",
    limit=0.12,
    phrase="power fell against its own usual distance to the peers",
    source="reasoning: as for clocks; power varies three times as much",
)
GPU_POWER_OUT_OF_LINE = Threshold(
    families=("hw_gpu_power_watts",),
    unit="of the usual power",
    limit=0.15,
    phrase="draws other power than the other cards, throughout the job",
    source="reasoning: as for clocks; chips of one model differ by some 10 % at the same load",
)
GPU_POWER_SPREAD = Threshold(
    families=("hw_gpu_power_watts",),
    unit="W between the cards' usual levels",
    limit=50.0,
    comparison=">",
    phrase="the cards' power differs by more than chips do",
    source="reasoning: worth a look; ranks of a pipeline differ by as much",
)
GPU_UNDERUSED = Threshold(
    families=("hw_gpu_utilization_ratio",),
    unit="0 to 1",
    limit=0.8,
    comparison="<",
    phrase="GPUs wait for input or for each other while they train",
    source="reasoning: kernels follow each other in a training that nothing holds up",
)
GPU_AT_WORK = Threshold(
    families=("hw_gpu_utilization_ratio",),
    unit="0 to 1",
    limit=0.3,
    phrase="at work, so that its power and clocks can be compared",
    source="reasoning: far above what display servers and monitors make; a live job that waits for "
    "its input half of the time still has it",
)
GPU_IDLE = Threshold(
    families=("hw_gpu_utilization_ratio",),
    unit="0 to 1",
    limit=0.05,
    comparison="<",
    seconds=180.0,
    phrase="does nothing for the training",
    source="reasoning: drivers, monitors and display servers make a few per cent",
)
GPU_LOADED = Threshold(
    families=("hw_gpu_vram_used_bytes",),
    unit="B",
    limit=2.0 * 2**30,
    comparison=">",
    phrase="somebody has loaded something onto it",
    source="reasoning: a context of CUDA or ROCm with its libraries takes up to some 1.5 GiB",
)
GPU_MEMORY_FULL = Threshold(
    families=("hw_gpu_vram_used_bytes", "hw_gpu_vram_total_bytes"),
    unit="share used",
    limit=0.97,
    comparison=">",
    phrase="the GPU's memory is nearly full",
    source="reasoning: what is left holds no buffer of a collective; frameworks that reserve all "
    "memory do so on all cards",
)
GPU_MEMORY_TIGHT = Threshold(
    families=("hw_gpu_vram_used_bytes", "hw_gpu_vram_total_bytes"),
    unit="share used",
    limit=0.95,
    comparison=">",
    phrase="the next allocation may fail",
    source="reasoning: as above, at the peak of a batch",
)

# GPUs: errors

GPU_UNCORRECTED = Threshold(
    families=(
        "hw_gpu_ecc_uncorrected_total",
        *(f"hw_gpu_ras_{block}_ue_total" for block in ("umc", "xgmi", "gfx", "mmhub", "sdma")),
    ),
    unit="errors",
    limit=1.0,
    severity="critical",
    seconds=600.0,
    phrase="uncorrectable errors of memory, links or blocks",
    source="NVIDIA's GPU memory error management and amdgpu's RAS documentation: what used the "
    "data is ended, or computes nonsense",
)
GPU_CORRECTED = Threshold(
    families=(
        "hw_gpu_ecc_corrected_total",
        *(f"hw_gpu_ras_{block}_ce_total" for block in ("umc", "xgmi", "gfx", "mmhub", "sdma")),
    ),
    unit="errors",
    limit=100.0,
    seconds=3600.0,
    phrase="corrected errors pile up",
    source="reasoning: healthy cards have a few a day; an alert does not see what the peers have",
)
GPU_CORRECTED_OVER_PEERS = Threshold(
    families=(*GPU_CORRECTED.families, "hw_gpu_nvlink_errors_total"),
    unit="errors within the job",
    limit=10.0,
    phrase="corrected errors pile up on one card",
    source="reasoning: with five times what the peers have, fewer are enough, and slow wear counts",
)
GPU_ROW_REMAP = Threshold(
    families=("hw_gpu_row_remap_pending",),
    unit="rows",
    limit=1.0,
    phrase="bad memory waits to be taken out of use, or could not be",
    source="NVIDIA's GPU memory error management, row remapping; a failed one is critical",
)
GPU_PCIE_FATAL = Threshold(
    families=("hw_gpu_pcie_fatal_total",),
    unit="errors",
    limit=1.0,
    severity="critical",
    seconds=600.0,
    phrase="fatal PCIe errors",
    source="PCI Express Base Specification, Advanced Error Reporting: the link is unreliable",
)
GPU_PCIE_NONFATAL = Threshold(
    families=("hw_gpu_pcie_nonfatal_total",),
    unit="errors",
    limit=1.0,
    seconds=600.0,
    phrase="non-fatal PCIe errors",
    source="as above: a transaction was lost, the link works; correctable ones are everyday",
)
GPU_PCIE_REPLAYS = Threshold(
    families=("hw_gpu_pcie_replay_total",),
    unit="replays",
    limit=100.0,
    comparison=">",
    seconds=3600.0,
    phrase="PCIe replays pile up",
    source="reasoning: a healthy link replays now and then; DCGM fails a card from 8 a minute",
)
NVLINK_RECOVERIES = Threshold(
    families=("hw_gpu_nvlink_errors_total",),
    unit="errors of the kinds recovery and ecc_data",
    limit=1.0,
    seconds=600.0,
    phrase="an NVLink recovered, or lost data",
    source="NVML's NVLink error counters: the link stood still meanwhile",
)
NVLINK_KINDS = ("recovery", "ecc_data")
"""Kinds of NVLink errors of which each one counts; replays and checksums of flits are everyday."""
NVLINK_REPLAYS = Threshold(
    families=("hw_gpu_nvlink_errors_total", "hw_gpu_ras_xgmi_ce_total"),
    unit="errors",
    limit=100.0,
    seconds=300.0,
    phrase="an NVLink or XGMI link corrects errors all the time",
    source="reasoning: an error is corrected in microseconds; hundreds in minutes are a bad link. "
    "The engine remembers 20 minutes; an hour's count is for alerts and the diagnosis",
)

# Network

RDMA_LINK_DOWNS = Threshold(
    families=("hw_rdma_link_downed_total",),
    unit="times",
    limit=1.0,
    seconds=1800.0,
    phrase="an RDMA link went down",
    source="InfiniBand Architecture Specification, PortCounters.LinkDownedCounter",
)
RDMA_RETRIES_EXCEEDED = Threshold(
    families=("hw_rdma_req_tx_retry_excd_err_total",),
    unit="connections",
    limit=1.0,
    severity="critical",
    seconds=600.0,
    phrase="a connection was given up after all retries",
    source="the verb's completion IBV_WC_RETRY_EXC_ERR: its queue pair is in error",
)
RDMA_ACK_TIMEOUTS = Threshold(
    families=("hw_rdma_tx_ack_timeout_total",),
    unit="time-outs",
    limit=5.0,
    seconds=60.0,
    page_seconds=300.0,
    phrase="peers do not acknowledge in time",
    source="reasoning: each costs a connection the time-out, tens of milliseconds to seconds",
)
RDMA_ACK_TIMEOUTS_OVER_PEERS = Threshold(
    families=("hw_rdma_tx_ack_timeout_total",),
    unit="time-outs within the job",
    limit=2.0,
    phrase="peers of this port alone do not acknowledge in time",
    source="reasoning: with five times what the other ports have, fewer are enough; one may be a "
    "restart of the peer",
)
RDMA_RETRANSMITS = Threshold(
    families=("hw_rdma_tx_retx_pkts_total",),
    unit="packets",
    limit=1000.0,
    seconds=60.0,
    phrase="many packets are sent again",
    source="reasoning: a burst of some dozens is every network's. Beside it: ten times the usual "
    "rate (engine), five times the peers' (diagnosis)",
)
RDMA_RETRANSMITTED_SHARE = Threshold(
    families=("hw_rdma_tx_retx_pkts_total", "hw_rdma_tx_pkts_total"),
    unit="of the packets sent",
    limit=0.001,
    comparison=">",
    seconds=300.0,
    page_seconds=600.0,
    phrase="a share of all packets is sent again",
    source="reasoning: go-back-N sends whole windows again; needs no history and no peers, which "
    "an alert rule does not have",
)
RDMA_CONGESTION = Threshold(
    families=("hw_rdma_rx_cnp_pkts_total",),
    unit="notifications",
    limit=60_000.0,
    seconds=60.0,
    phrase="the path is congested",
    source="reasoning: congestion control at work sends hundreds a second. Beside it: twenty times "
    "the usual rate",
)
RDMA_UNUSED = Threshold(
    families=("hw_rdma_tx_bytes_total",),
    unit="B",
    limit=1e6,
    comparison="<",
    seconds=120.0,
    phrase="nothing goes over the RDMA ports",
    source="reasoning: management packets are kilobytes, a collective megabytes a step",
)
SOCKETS_USED = Threshold(
    families=("hw_net_tx_bytes_total",),
    unit="B",
    limit=20e9,
    comparison=">",
    seconds=120.0,
    phrase="collectives go over sockets, where RDMA ports are up",
    source="reasoning: more than a gigabit a second all the time is no control traffic",
)
RDMA_BACKGROUND = Threshold(
    families=("hw_rdma_tx_retx_pkts_total", "hw_rdma_rx_cnp_pkts_total"),
    unit="packets a second",
    limit=1.0,
    comparison=">",
    seconds=120.0,
    phrase="above what any network has",
    source="reasoning: the floor of a comparison with the peers over a whole job",
)
RDMA_SYMBOL_ERRORS = Threshold(
    families=("hw_rdma_symbol_errors_total",),
    unit="errors",
    limit=120.0,
    comparison=">",
    seconds=3600.0,
    phrase="symbol errors beyond what InfiniBand allows for",
    source="InfiniBand's bit error rate of 1e-12: some 120 an hour on a link of 4 lanes (Mellanox)",
)
NETWORK_ERRORS = Threshold(
    families=("hw_net_rx_errors_total", "hw_net_tx_errors_total"),
    unit="errors a second",
    limit=1.0,
    comparison=">",
    seconds=300.0,
    page_seconds=600.0,
    phrase="a network card counts errors",
    source="reasoning: without peers, with which the diagnosis sees less",
)
NETWORK_ERRORS_OVER_PEERS = Threshold(
    families=("hw_net_rx_errors_total", "hw_net_tx_errors_total"),
    unit="errors within the job",
    limit=10.0,
    seconds=300.0,
    phrase="a network card counts errors, and the others do not",
    source="reasoning: with five times what the other cards have, fewer are enough; in less time "
    "it is an event (a link that was reset), no bad card",
)
NETWORK_ERRORS_BACKGROUND = Threshold(
    families=("hw_net_rx_errors_total", "hw_net_tx_errors_total"),
    unit="errors a second",
    limit=0.2,
    phrase="above what any card has",
    source="reasoning: the floor of a comparison with the peers, where TCP carries the collectives",
)
TCP_BACKGROUND = Threshold(
    families=("hw_tcp_retransmits_total",),
    unit="segments a second",
    limit=10.0,
    seconds=120.0,
    phrase="above what any network has",
    source="reasoning: the floor of a comparison with the peers, where TCP carries the collectives",
)
TCP_RETRANSMITS = Threshold(
    families=("hw_tcp_retransmits_total",),
    unit="segments",
    limit=60_000.0,
    seconds=60.0,
    phrase="TCP sends very much again",
    source="reasoning: storage and control traffic retransmit hundreds a second without harm",
)
TCP_SPIKE = Threshold(
    families=("hw_tcp_retransmits_total",),
    unit="segments a second",
    limit=50.0,
    comparison=">",
    phrase="control traffic is lost for moments",
    source="reasoning: enough for a heartbeat to come late. Beside it: three times the host's "
    "usual rate",
)
TCP_REFUSED = Threshold(
    families=("hw_tcp_listen_drops_total", "hw_tcp_abort_on_timeout_total"),
    unit="connections a second",
    limit=0.2,
    comparison=">",
    phrase="connections are turned away, or given up",
    source="reasoning: a dozen in a minute are no single client. Beside it: three times the host's "
    "usual rate",
)
TCP_ABORTS = Threshold(
    families=("hw_tcp_abort_on_timeout_total",),
    unit="connections within the job",
    limit=10.0,
    phrase="a peer of storage or control traffic did not answer",
    source="reasoning: a server that is started again costs a few",
)
ROUND_TRIP_SLOW = Threshold(
    families=(),
    unit="s",
    limit=0.05,
    comparison=">",
    phrase="nodes are far apart",
    source="reasoning: nodes of one data centre take a hundredth of it",
)

# Hosts

CPU_CONTENTION = Threshold(
    families=("hw_procs_running",),
    unit="runnable threads above the usual number",
    limit=16.0,
    comparison=">",
    seconds=60.0,
    phrase="other work competes for the CPUs",
    source="reasoning: a monitor or a shell starts a few. Beside it: twice the usual number",
)

MEMORY_LOW = Threshold(
    families=("hw_mem_available_bytes", "hw_mem_total_bytes"),
    unit="share available",
    limit=0.03,
    comparison="<",
    severity="critical",
    page_seconds=60.0,
    phrase="hardly any memory is left",
    source="reasoning: the kernel reclaims from some per cent on, then kills",
)
MEMORY_RUNS_OUT = Threshold(
    families=("hw_mem_available_bytes", "hw_mem_total_bytes"),
    unit="share available, and falling",
    limit=0.3,
    comparison="<",
    seconds=300.0,
    phrase="at this rate no memory is left within a quarter of an hour",
    source="reasoning: above it a dataset is loaded, or a cache filled, which ends",
)
MEMORY_NEAR = Threshold(
    families=("hw_mem_available_bytes", "hw_mem_total_bytes", "hw_cgroup_mem_used_bytes"),
    unit="share used",
    limit=0.93,
    phrase="near enough to its limit to speak of where a job died",
    source="reasoning: samples are 15 s apart, and a peak lies between them",
)
CONTAINER_FULL = Threshold(
    families=("hw_cgroup_mem_used_bytes", "hw_cgroup_mem_limit_bytes"),
    unit="share used",
    limit=0.95,
    comparison=">",
    seconds=60.0,
    page_seconds=60.0,
    phrase="the container is at its memory limit",
    source="kernel, cgroup-v2: the page cache counts as used; only together with pressure it lacks",
)
CONTAINER_PRESSURE = Threshold(
    families=("hw_mem_pressure_some_pct",),
    unit="% of the time",
    limit=10.0,
    comparison=">",
    seconds=60.0,
    page_seconds=60.0,
    phrase="somebody waits for memory",
    source="kernel, Documentation/accounting/psi.rst; goes with a container that is full",
)
MEMORY_THRASHING = Threshold(
    families=("hw_mem_pressure_full_pct",),
    unit="% of the time",
    limit=20.0,
    seconds=60.0,
    phrase="all wait for memory: the host thrashes",
    source="systemd-oomd acts from 60 % on; a step is visibly slower from a fifth on",
)
OOM_KILLS = Threshold(
    families=("hw_oom_kills_total", "hw_cgroup_oom_kills_total"),
    unit="kills",
    limit=1.0,
    severity="critical",
    seconds=600.0,
    phrase="the kernel killed a process for want of memory",
    source="kernel, mm/oom_kill.c",
)
DISK_FULL = Threshold(
    families=("hw_disk_free_bytes", "hw_disk_total_bytes"),
    unit="share free",
    limit=0.03,
    comparison="<",
    severity="critical",
    page_seconds=60.0,
    phrase="a file system is nearly full",
    source="reasoning: Ray stops placing work at 95 %",
)
DISK_FULL_BYTES = Threshold(
    families=("hw_disk_free_bytes",),
    unit="B",
    limit=20e9,
    comparison="<",
    severity="critical",
    page_seconds=60.0,
    phrase="and little is left of it in bytes",
    source="reasoning: 3 % of a large file server hold many checkpoints",
)
DISK_FILLS_UP = Threshold(
    families=("hw_disk_free_bytes", "hw_disk_total_bytes"),
    unit="share free, and falling",
    limit=0.25,
    comparison="<",
    page_seconds=600.0,
    phrase="at this rate the file system is full within four hours",
    source="reasoning: above it old checkpoints are removed in time",
)
FILES_LOW = Threshold(
    families=(),
    unit="free inodes",
    limit=1000.0,
    comparison="<",
    severity="critical",
    phrase="hardly a file can be made",
    source="reasoning: a checkpoint of many shards may need more",
)
STORAGE_SLOW = Threshold(
    families=(),
    unit="s for 4 MiB with fsync",
    limit=2.0,
    comparison=">",
    phrase="a checkpoint takes far too long",
    source="reasoning: 2 MiB/s; a disk writes a hundred times as much",
)
SHARED_MEMORY_FULL = Threshold(
    families=(),
    unit="B of /dev/shm free",
    limit=256.0 * 2**20,
    comparison="<",
    severity="critical",
    phrase="data loaders and NCCL die of SIGBUS",
    source="reasoning: container runtimes give 64 MiB unless told otherwise",
)
SHARED_MEMORY_SMALL = Threshold(
    families=(),
    unit="B of /dev/shm",
    limit=8.0 * 2**30,
    comparison="<",
    phrase="data loaders with workers may run short",
    source="reasoning: each worker keeps some batches there",
)
OPEN_FILES_LOW = Threshold(
    families=(),
    unit="open files allowed",
    limit=65_536.0,
    comparison="<",
    phrase="a large job may need more open files, sockets among them",
    source="reasoning: Ray keeps sockets and files for every worker, node and log",
)
OPEN_FILES_TOO_FEW = Threshold(
    families=(),
    unit="open files allowed",
    limit=4_096.0,
    comparison="<",
    severity="critical",
    phrase="Ray itself runs out of open files",
    source="reasoning: a raylet has some for every worker and every peer",
)
PROCESSES_LOW = Threshold(
    families=(),
    unit="processes and threads allowed to a user",
    limit=16_384.0,
    comparison="<",
    phrase="a node of ranks may need more threads",
    source="reasoning: a rank has hundreds",
)
PROCESSES_LEFT = Threshold(
    families=(),
    unit="processes and threads left to a container",
    limit=2_048.0,
    comparison="<",
    phrase="a node of ranks may not be started",
    source="reasoning: eight ranks have as many threads",
)
LOCKED_MEMORY_LOW = Threshold(
    families=(),
    unit="B of locked memory allowed",
    limit=float(2**30),
    comparison="<",
    severity="critical",
    phrase="RDMA cannot pin its buffers",
    source="libibverbs, ibv_reg_mr: what is registered counts as locked (RLIMIT_MEMLOCK)",
)
DIRTY_PAGES = Threshold(
    families=("hw_mem_dirty_bytes",),
    unit="B",
    limit=4e9,
    comparison=">",
    phrase="storage does not take what is written",
    source="reasoning: a burst of some GB is a checkpoint's. Beside it: three times what the host "
    "has at other times",
)
IO_WAITS = Threshold(
    families=("hw_io_pressure_full_pct",),
    unit="% of the time",
    limit=20.0,
    comparison=">",
    phrase="threads wait for storage long enough to miss a heartbeat",
    source="reasoning: for a moment; what lasts is io_pressure's",
)
IO_PRESSURE = Threshold(
    families=("hw_io_pressure_full_pct", "hw_io_pressure_full_avg300_pct"),
    unit="% of the time",
    limit=50.0,
    seconds=120.0,
    page_seconds=600.0,
    phrase="all wait for storage half of the time",
    source="kernel, Documentation/accounting/psi.rst; a save does it for a moment",
)
BLOCKED_PROCESSES = Threshold(
    families=("hw_dstate_processes",),
    unit="processes in one kernel function",
    limit=4.0,
    seconds=60.0,
    page_seconds=600.0,
    phrase="processes pile up in the kernel",
    source="reasoning: who reads a disk is there for moments, and rarely four in one function",
)

TABLE: dict[str, Threshold] = {
    name.lower(): value for name, value in list(globals().items()) if isinstance(value, Threshold)
}
"""All rows by name, in lower case as the descriptions of alerts and dashboards write them."""
