"""Known functions of the Linux kernel.

Matched in full against the name that ``names.plain`` leaves. Rows are tried in order, the first
that matches a frame gives its meaning. To teach a new library, add a row.
"""

from __future__ import annotations

from ray_sentinel.evidence.stacks import meanings as m
from ray_sentinel.evidence.stacks.meanings import FramePattern

KERNEL: tuple[FramePattern, ...] = (
    FramePattern(
        m.STOPPED,
        r"do_signal_stop|do_jobctl_trap|ptrace_stop|get_signal_stop|do_freezer_trap"
        r"|__refrigerator|refrigerator|cgroup_freeze\w*|ptrace_notify",
    ),
    FramePattern(
        m.FIFO, r"(anon_)?pipe_(read|write|wait\w*)|fifo_open|wait_for_partner|n_tty_read|tty_read"
    ),
    FramePattern(
        m.NETWORK,
        r"(tcp|udp|inet|inet6|unix|sock|sk|skb|svc|sctp|vsock|tls)_\w*(recv|send|accept|wait"
        r"|connect|read|poll_wait)\w*|(__)?skb_(wait|recv)\w*|unix_stream_read_generic"
        r"|sys_(recv|send|accept|connect)\w*|inet_csk_accept|sock_\w+",
    ),
    FramePattern(
        m.DEVICE,
        r"(nvidia|nv|nvkms|uvm|rm|os_acquire|_nv\d+rm|amdgpu|kfd|amdkfd|dma_fence|drm|habanalabs"
        r"|xe|i915|gdrdrv|nvidia_p2p)_\w+",
    ),
    FramePattern(
        m.STORAGE,
        r"(nfs|nfs4|rpc|ceph|fuse|lustre|ll|cl|ldlm|osc|ptlrpc|mdc|gpfs|gss|cifs|smb2?|beegfs|wekafs"
        r"|weka|ext4|xfs|btrfs|jbd2|f2fs|zfs|dm|md|raid\d*|blk|bio|nvme|scsi|loop|ovl|p9|v9fs"
        r"|netfs|afs|orangefs|fscache|cachefiles|iomap|squashfs)_\w+"
        r"|(folio|page|filemap|truncate|writeback|wb|balance_dirty|wait_on|submit_bio|vfs_fsync"
        r"|generic_file|file_write|do_fsync|sync|bdi|io_schedule|inode|rq_qos|wbt)\w*"
        r"|fsync|fdatasync|sync_file_range|msync|xlog_\w+|wait_transaction\w*|start_this_handle",
    ),
    FramePattern(
        m.SLEEP, r"do_nanosleep|hrtimer_nanosleep|common_nsleep\w*|sys_(clock_)?nanosleep"
    ),
    FramePattern(m.CHILD, r"do_wait|kernel_wait4|kernel_waitid|sys_wait\w+"),
    FramePattern(
        m.LOCK,
        r"flock_lock\w*|locks_lock\w*|fcntl_setlk\w*|posix_lock\w*|mutex_lock\w*"
        r"|rwsem_down\w*|down_(read|write)\w*|sys_flock|do_semtimedop|do_mq_\w+",
    ),
    FramePattern(m.FIFO, r"eventfd_read|signalfd_\w+|timerfd_read\w*"),
    FramePattern(m.OPEN, r"do_sys_open\w*|path_openat|do_filp_open|sys_open\w*"),
    FramePattern(m.READ, r"ksys_read|vfs_read|sys_p?readv?(64)?|ksys_pread64"),
    FramePattern(m.WRITE, r"ksys_write|vfs_write|sys_p?writev?(64)?|ksys_pwrite64"),
    FramePattern(m.FUTEX, r"futex_\w+|do_futex|sys_futex\w*"),
    FramePattern(
        m.POLL,
        r"do_sys_poll|ep_poll|do_epoll_wait|do_select|core_sys_select|poll_schedule_timeout"
        r"|sys_(poll|ppoll|select|epoll_wait|sched_yield)|io_cqring_wait|read_events"
        r"|schedule_hrtimeout\w*",
    ),
)
