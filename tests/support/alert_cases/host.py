"""Cases of the rules about hosts."""

from tests.support.alert_cases.case import WATCHED, Case, fires, quiet

HOST = {"host": "n1"}
OF_HOST = '{host="n1"}'
MOUNT = {"host": "n1", "mount": "/ckpt"}
OF_MOUNT = '{host="n1",mount="/ckpt"}'
ALIVE = 'train_rank_alive{{host="{}",job="llm",rank="{}"}}'
READ = 'ray_sentinel_collector_success{host="n1",collector="host"}'
DMESG = 'hw_dmesg_errors_total{{host="n1",kind="{}"}}'

PRESENCE = (
    fires(
        "NodeLost",
        "with a rank alive to the last",
        {
            ALIVE.format("n1", 0): "1x20 stale",
            ALIVE.format("n1", 1): "1x20 stale",
            WATCHED: "1x20 stale",
            ALIVE.format("n2", 2): "1x60",
            'ray_sentinel_build_info{host="n2"}': "1x60",
        },
        HOST,
    ),
    quiet(
        "NodeLost",
        "drained: its ranks had ended",
        {ALIVE.format("n1", 0): "1x15 0x5 stale", WATCHED: "1x20 stale"},
    ),
    quiet(
        "NodeLost",
        "the agent is there, only the rank's series left",
        {ALIVE.format("n1", 0): "1x20 stale", WATCHED: "1x60"},
    ),
    quiet(
        "NodeLost",
        "the agent was restarted",
        {ALIVE.format("n1", 0): "1x27 stale 1x20", WATCHED: "1x27 stale 1x20"},
    ),
)
MEMORY = (
    fires(
        "OutOfMemorySoon",
        "2 %",
        {
            f"hw_mem_available_bytes{OF_HOST}": "2e9x60",
            f"hw_mem_total_bytes{OF_HOST}": "100e9x60",
        },
        HOST,
    ),
    quiet(
        "OutOfMemorySoon",
        "10 %",
        {
            f"hw_mem_available_bytes{OF_HOST}": "10e9x60",
            f"hw_mem_total_bytes{OF_HOST}": "100e9x60",
        },
    ),
    fires(
        "CgroupOutOfMemorySoon",
        "full, and waiting",
        {
            f"hw_cgroup_mem_used_bytes{OF_HOST}": "99e9x60",
            f"hw_cgroup_mem_limit_bytes{OF_HOST}": "100e9x60",
            f"hw_mem_pressure_some_pct{OF_HOST}": "40x60",
        },
        HOST,
    ),
    quiet(
        "CgroupOutOfMemorySoon",
        "full of page cache",
        {
            f"hw_cgroup_mem_used_bytes{OF_HOST}": "99e9x60",
            f"hw_cgroup_mem_limit_bytes{OF_HOST}": "100e9x60",
            f"hw_mem_pressure_some_pct{OF_HOST}": "0x60",
        },
    ),
    fires("OutOfMemoryKill", "one", {f"hw_oom_kills_total{OF_HOST}": "4x20 5x40"}, HOST),
    fires(
        "OutOfMemoryKill",
        "only the container's is counted",
        {
            f"hw_oom_kills_total{OF_HOST}": "4x60",
            f"hw_cgroup_oom_kills_total{OF_HOST}": "0x20 1x40",
        },
        HOST,
    ),
    quiet("OutOfMemoryKill", "before we came", {f"hw_oom_kills_total{OF_HOST}": "4x60"}),
)
DISKS = (
    fires(
        "DiskFull",
        "1 %",
        {f"hw_disk_free_bytes{OF_MOUNT}": "1e9x60", f"hw_disk_total_bytes{OF_MOUNT}": "1e11x60"},
        MOUNT,
    ),
    quiet(
        "DiskFull",
        "10 %",
        {f"hw_disk_free_bytes{OF_MOUNT}": "1e10x60", f"hw_disk_total_bytes{OF_MOUNT}": "1e11x60"},
    ),
    fires(
        "DiskFillsUp",
        "20 GB left, 6 GB an hour",
        {
            f"hw_disk_free_bytes{OF_MOUNT}": "26e9-5e7x200",
            f"hw_disk_total_bytes{OF_MOUNT}": "1e11x200",
        },
        MOUNT,
        at="80m",
    ),
    quiet(
        "DiskFillsUp",
        "not before tomorrow",
        {
            f"hw_disk_free_bytes{OF_MOUNT}": "24e9-1e6x200",
            f"hw_disk_total_bytes{OF_MOUNT}": "1e11x200",
        },
        at="80m",
    ),
    quiet(
        "DiskFillsUp",
        "half of it is free",
        {
            f"hw_disk_free_bytes{OF_MOUNT}": "60e9-2e8x200",
            f"hw_disk_total_bytes{OF_MOUNT}": "1e11x200",
        },
        at="60m",
    ),
    fires(
        "MountDoesNotAnswer",
        "the others do",
        {f"hw_disk_total_bytes{OF_MOUNT}": "1e11x15 stale", READ: "1x60"},
        MOUNT,
    ),
    quiet(
        "MountDoesNotAnswer",
        "the whole host has gone",
        {f"hw_disk_total_bytes{OF_MOUNT}": "1e11x15 stale", READ: "1x15 stale"},
    ),
    quiet(
        "MountDoesNotAnswer",
        "it answers",
        {f"hw_disk_total_bytes{OF_MOUNT}": "1e11x60", READ: "1x60"},
    ),
    fires("IoPressure", "for long", {f"hw_io_pressure_full_avg300_pct{OF_HOST}": "70x60"}, HOST),
    quiet("IoPressure", "some", {f"hw_io_pressure_full_avg300_pct{OF_HOST}": "20x60"}),
)
KERNEL = (
    fires(
        "TasksHang", "one", {DMESG.format("hung_task"): "0x20 1x40"}, {**HOST, "kind": "hung_task"}
    ),
    quiet("TasksHang", "of before", {DMESG.format("hung_task"): "3x60"}),
    fires(
        "HardwareErrors",
        "memory and disk",
        {DMESG.format("mce"): "0x20 1x40", DMESG.format("nvme"): "1x20 2x40"},
        {**HOST, "kind": "mce"},
        {**HOST, "kind": "nvme"},
    ),
    quiet(
        "HardwareErrors",
        "others have rules of their own",
        {DMESG.format("oom"): "0x20 1x40", DMESG.format("gpu"): "0x20 1x40"},
    ),
    fires(
        "TasksBlocked",
        "many",
        {
            'hw_dstate_processes{host="n1",wchan="rpc_wait_bit_killable"}': "4x60",
            'hw_dstate_processes{host="n1",wchan="io_schedule"}': "2x60",
        },
        HOST,
    ),
    quiet(
        "TasksBlocked",
        "writing to a disk",
        {'hw_dstate_processes{host="n1",wchan="io_schedule"}': "2x60"},
    ),
)

CASES: tuple[Case, ...] = (*PRESENCE, *MEMORY, *DISKS, *KERNEL)
