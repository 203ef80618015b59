"""Known functions of machine code: NCCL, CUDA, MPI, libc, CPython.

Matched in full against the name that ``names.plain`` leaves. Rows are tried in order, the first
that matches a frame gives its meaning. To teach a new library, add a row.
"""

from __future__ import annotations

from ray_sentinel.evidence.stacks.frames import meanings as m
from ray_sentinel.evidence.stacks.frames.meanings import FramePattern

DRIVERS = r"(^|/)lib(cuda|hsa-runtime64|amdhip64|ze_loader|ascendcl)\.so[.\d]*$"
"""Libraries whose frames mean something even without a name: they are shipped without symbols."""

NATIVE: tuple[FramePattern, ...] = (
    FramePattern(
        m.GIL,
        r"take_gil|PyGILState_Ensure|PyEval_(RestoreThread|AcquireThread|AcquireLock)"
        r"|pybind11::gil_scoped_acquire::.*|PyThreadState_Attach|_?PyMutex_LockSlow_gil"
        # Of CPython's own locks only the GIL is waited for with these.
        r"|PyCOND_(TIMED)?WAIT",
    ),
    # Setting up and closing communicators.
    FramePattern(
        m.COMMUNICATOR,
        r"p?(ncclCommInit|ncclCommSplit|rcclCommInit|ncclGetUniqueId)\w*|ncclAsyncThreadMain"
        r"|bootstrap(Init|Net|AllGather|Barrier|Send|Recv|Ring|Split|IntraNode)\w*"
        r"|initTransportsRank|ncclTransport\w*|ncclCommInitRankFunc"
        r"|c10d::ProcessGroupNCCL::(getNCCLComm|initNCCLComm|broadcastUniqueNCCLID)"
        r"|gloo::rendezvous::.*::(connectFullMesh|createDevice\w*)|gloo::transport::.*::connect",
    ),
    FramePattern(
        m.JOINING,
        r"c10d::(TCPStore|PrefixStore|FileStore|HashStore|Store)::(wait|get|doWait|doGet)"
        r"|c10d::detail::TCPClient::.*|c10d::TCPStore::(TCPStore|waitForWorkers|validate)",
    ),
    FramePattern(
        m.CLOSING,
        r"p?nccl(CommDestroy|CommAbort|CommFinalize)\w*|commReclaim|commDestroySync"
        r"|c10d::ProcessGroupNCCL::(abort|shutdown|waitForFutureOrTimeout|~ProcessGroupNCCL).*",
    ),
    # Collectives.
    # A device's own frames, as cuda-gdb and rocgdb show them.
    FramePattern(m.COLLECTIVE, r"(nccl|rccl)(Dev)?(Kernel|Function|Func)_\w+"),
    FramePattern(
        m.COLLECTIVE,
        rf"p?([nrm]ccl|[hH]ccl|cncl|bkcl|mscclpp?|ccl_)(?i:{m.OPERATIONS})\w*"
        rf"|ccl(_comm|(::\w+)*)::({m.OPERATIONS})\w*",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"p?nccl(Group(End|Start|Launch|CommJoin)\w*|EnqueueCheck|Launch\w*|ProxyStart\w*"
        r"|CommEnsureReady|SpinWait\w*|LocalOpAppend)|groupLaunch|doLaunches|hostStreamPlan\w*"
        r"|ccl_executor::(wait|test)\w*|ccl_coll_create|ccl_(wait|release)_impl\w*",
        operation="a collective",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"c10d::Work::(wait|synchronize)"
        r"|c10d::(ProcessGroup\w*::)?(Async)?Work\w*::(wait|waitInternal|synchronize\w*|isCompleted)"
        r"|c10d::ProcessGroup\w+::\w*Work\w*::(wait|waitInternal|synchronize\w*"
        r"|handleException|blockingWait|checkTimeout)"
        r"|c10d::SymmetricMemory::.*|c10d::symmetric_memory::.*",
        operation="a collective",
    ),
    FramePattern(
        m.COLLECTIVE,
        rf"c10d::(ProcessGroup\w*|Async\w*Work|Logger|ops)(::\w+)*::(?i:_?({m.OPERATIONS})\w*)",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"c10d::Reducer::(finalize_backward|finalize_bucket_dense|sync_\w+)"
        r"|c10d::(_compute_bucket|verify_params_across_processes|sync_module_states)\w*"
        r"|c10d::(broadcast_coalesced|_broadcast_coalesced)",
        operation="all_reduce",
    ),
    FramePattern(m.COLLECTIVE, rf"gloo::(\w+::)*(?i:({m.OPERATIONS})\w*)"),
    FramePattern(
        m.COLLECTIVE,
        r"gloo::transport::\w+::(Unbound)?Buffer::wait(Send|Recv)|gloo::.*::(wait|ring|bcube)",
        operation="a collective",
    ),
    FramePattern(m.COLLECTIVE, rf"P?MPI_I?(?i:{m.OPERATIONS})\w*"),
    FramePattern(
        m.COLLECTIVE,
        r"(ompi|mca)_(coll|comm)_\w*(all(reduce|gather|toall)|reduce|bcast|barrier|gather|scatter)"
        r"\w*|(MPIR|MPIDI?|MPII)_(All(reduce|gather|toall)|Reduce|Bcast|Barrier)\w*",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"P?MPI_(Wait|Waitall|Waitany|Test\w*|Probe|Fence|Win_\w+)|(ompi|mca)_\w+"
        r"|opal_\w*(progress|wait|condition|sync)\w*"
        r"|(MPIR|MPID|MPIDI|MPII)_\w+|ucc_\w+|ucp_\w*(progress|wait|flush)\w*"
        r"|ucs_\w*progress\w*|uct_\w*progress\w*|psm2_\w+|nvshmemi?_?\w*(barrier|wait|quiet|sync)\w*"
        r"|horovod::common::\w+::\w*(Wait|Allreduce|Barrier|Enqueue)\w*",
        operation="a collective",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"(xla|tsl|pjrt)::.*(Rendezvous|AllReduce|AllGather|AllToAll|ReduceScatter|Collective"
        r"|NcclComm|Barrier)\w*.*",
        operation="a collective",
    ),
    # The device.
    FramePattern(
        m.DEVICE,
        r"(cu|cuda|hip|cnrt|acl|aclrt)\w*Synchronize\w*|cu(da)?(StreamWaitEvent|EventQuery"
        r"|StreamQuery)\w*|cudart::.*[sS]ynchronize\w*"
        r"|(at|c10)::cuda::(CUDAStream|CUDAEvent|CUDAGraph)::(synchronize|replay)"
        r"|(c10|at)::(cuda|hip)::(device_synchronize|stream_synchronize|memcpy_and_sync)"
        r"|at::native::_local_scalar_dense_(cuda|hip)(::.*)?|at::native::nonzero_cuda\w*"
        r"|hsa_signal_wait\w*|rocr::.*Signal::Wait\w*|amd::.*(await\w*|[wW]ait\w*|finish)"
        r"|THCPModule_cudaSynchronize|THCPModule_\w*[sS]ynchronize\w*|THCPStream_synchronize"
        r"|THCPEvent_synchronize|(xla|jax)::.*(BlockUntilReady|BlockHostUntilDone|Await(Buffers)?Ready)\w*"
        r"|tsl::.*BlockUntilReady\w*|l0::.*[sS]ynchronize|zeEventHostSynchronize"
        r"|zeCommandQueueSynchronize|ur::(\w+::)*ur(EventWait|QueueFinish|EnqueueEventsWait)\w*"
        # Ascend's streams are handed out only once all that was queued has been launched.
        r"|c10_npu::(NPUStream|NPUEvent)::(stream|synchronize|query)"
        r"|c10_npu::(\w+::)?(MakeSureQueueEmpty|npuSynchronize\w*)",
    ),
    FramePattern(m.LAUNCH, r"(cu|cuda|hip)(Memcpy|Memset)\w*Async\w*"),
    FramePattern(m.DEVICE, r"(cu|cuda|hip)(Memcpy|Memset)\w*"),
    FramePattern(
        m.DEVICE_RELEASE,
        r"(cu|cuda|hip)(Mem)?(Free|HostFree|FreeHost|HostUnregister|Unmap|Release)\w*",
    ),
    FramePattern(
        m.ALLOCATION,
        r"(cu|cuda|hip)(Mem)?(Malloc|Alloc|HostAlloc|HostRegister|AddressReserve|Create|Map)\w*"
        r"|c10::(cuda|hip)::\w*CachingAllocator::.*"
        r"|(malloc|calloc|realloc|free|posix_memalign|int_malloc|int_free|sysmalloc"
        r"|mmap|munmap|mremap|madvise|brk|sbrk|je_\w*alloc\w*|tc_\w*alloc\w*|mi_\w*alloc\w*)",
    ),
    FramePattern(
        m.LAUNCH,
        r"(cu|cuda|hip)(LaunchKernel|LaunchCooperativeKernel|GraphLaunch|ModuleLaunch\w*"
        r"|EventRecord)\w*",
    ),
    FramePattern(
        m.COMPILE,
        r"nvrtc\w+|nvPTXCompiler\w+|cu(Module|Link|Library)(LoadData|Create|Complete"
        r"|AddData)\w*|hiprtc\w+|LLVM\w*|llvm::.*|mlir::.*|xla::.*Compile\w*|ptxas\w*",
    ),
    # Input, checkpoints.
    FramePattern(m.INPUT, r"dali::.*|tensorflow::data::.*|arrow::dataset::.*|torch::data::.*"),
    FramePattern(m.CHECKPOINT, r"caffe2::serialize::.*|tensorstore::.*|safetensors.*"),
    FramePattern(
        m.REMOTE,
        r"Aws::.*|google::cloud::storage::.*|hdfs\w+|ceph_\w+|rados_\w+|fuse_\w+"
        r"|lfs_\w+|llapi_\w+",
    ),
    # Other threads of the process.
    FramePattern(
        m.BACKWARD,
        r"THPEngine_run_backward|torch::autograd::(python::Python)?Engine::execute\w*"
        r"|torch::autograd::python::PythonEngine::execute\w*",
    ),
    FramePattern(
        m.SESSION,
        r"tensorflow::(DirectSession|GrpcSession|LocalMaster|Master(Session)?)::(\w+::)*"
        r"(Run\w*|WaitForNotification)|tensorflow::(KernelAndDevice\w*|EagerExecute\w*)(::Run)?"
        r"|TFE_(Py_)?\w*Execute\w*|TF_SessionRun\w*",
    ),
    FramePattern(m.FUTURE, r"c10::ivalue::Future::wait\w*|at::ivalue::Future::wait\w*"),
    FramePattern(
        m.IDLE,
        r"ray::(core::)?CoreWorker(Process)?(Impl)?::Run(TaskExecution\w*|IOService)",
    ),
    FramePattern(m.RAY, r"ray::(core::.*|CoreWorker\w*::.*)|plasma::.*"),
    FramePattern(
        m.NETWORK, r"grpc_completion_queue_(next|pluck)|grpc::.*|zmq::.*|zmq_\w+|grpc_core::.*"
    ),
    # The C library and CPython's own waits.
    FramePattern(
        m.SLEEP,
        r"time_sleep|pysleep|clock_nanosleep\w*|nanosleep|usleep|sleep|do_nanosleep"
        r"|hrtimer_nanosleep|common_nsleep\w*|std::this_thread::sleep_\w+",
    ),
    FramePattern(
        m.SIGNAL,
        r"pause|sig(wait|waitinfo|timedwait|suspend)|signal_(pause|sig(wait|waitinfo|timedwait))\w*",
    ),
    FramePattern(
        m.TYPING,
        r"builtin_input\w*|PyOS_(Stdio)?Readline|my_fgets|readline_until_enter_or_signal"
        r"|call_readline",
    ),
    FramePattern(
        m.CHILD, r"wait4|waitpid|waitid|wait3|os_wait\w*|do_wait|kernel_wait4|kernel_waitid"
    ),
    FramePattern(
        m.MUTEX,
        r"PyThread_acquire_lock\w*|lock_PyThread_acquire_lock|lock_acquire|rlock_acquire"
        r"|acquire_timed|pthread_mutex_lock\w*|pthread_rwlock_\w*lock\w*|pthread_spin_lock"
        r"|lll_lock_wait\w*|lll_mutex_lock\w*|sem_wait\w*|sem_timedwait|sem_clockwait|new_sem_wait\w*"
        r"|do_futex_wait\w*|flock\w*|fcntl_setlk\w*|flock_lock_inode\w*|locks_lock\w*"
        r"|std::mutex::lock|absl::.*Mutex::.*Lock\w*|semlock_acquire|_multiprocessing_SemLock_acquire"
        r"|_?PyMutex_Lock\w*|_?PyParkingLot_Park|posix_lock\w*|mutex_lock\w*|rwsem_down\w*"
        r"|pthread_barrier_wait|(\w+::)*SpinLock(Delay|::(Slow)?Lock)\w*",
    ),
    FramePattern(m.JOIN, r"pthread_(join|timedjoin_np|clockjoin_ex)\w*|std::thread::join"),
    FramePattern(
        m.NETWORK,
        r"(recv|send|recvfrom|sendto|recvmsg|sendmsg|recvmmsg|accept4?|connect|getaddrinfo)"
        r"|sock_call(_ex)?|sock_(recv|send|accept|connect)\w*|socketPoll\w*"
        r"|SSL_(read|write|connect|accept)\w*|ssl3_\w+|PySSL_\w+|_ssl__SSLSocket_\w+",
    ),
    FramePattern(m.STORAGE, r"fsync|fdatasync|sync_file_range|msync|syncfs|os_fsync\w*"),
    FramePattern(
        m.OPEN, r"open(at)?|creat|fopen|_?io_open(_impl)?|_io_FileIO___init__\w*|do_sys_open\w*"
    ),
    FramePattern(
        m.READ,
        r"read|pread|readv|preadv|os_read\w*|_?Py_read|_io_FileIO_read\w*|_io__?Buffered\w*read\w*"
        r"|fread|fgets|getline|io_file_\w*(read|underflow)\w*|ksys_read|vfs_read|_bufferedreader_\w+",
    ),
    FramePattern(
        m.WRITE,
        r"write|pwrite|writev|pwritev|os_write\w*|_?Py_write\w*|_io_FileIO_write\w*|fwrite|fflush"
        r"|_io__?Buffered\w*(write|flush)\w*|io_\w*(write|overflow|flush)\w*|ksys_write|vfs_write"
        r"|sendfile|copy_file_range|ftruncate|fallocate|posix_fallocate|_bufferedwriter_\w+",
    ),
    # Mechanisms: they may serve anything.
    FramePattern(
        m.FUTEX,
        r"pthread_cond_(timed|clock)?wait\w*|futex\w*|do_futex|sys_futex|std::condition_variable\w*::wait"
        r"\w*|std::__condvar::wait\w*|syscall_futex|AbslInternalPerThreadSemWait\w*"
        r"|absl::(\w+::)*(Mutex::(Await|Block)\w*|CondVar::Wait\w*|Waiter::\w+"
        r"|(Futex)?Waiter::Wait\w*)|nsync::(\w*(wait|semaphore_p)\w*|futex)"
        r"|(tensorflow|tsl)::(\w+::)*(condition_variable::wait|Notification::Wait)\w*",
    ),
    FramePattern(
        m.POLL,
        r"poll|ppoll|select|pselect6?|epoll_p?wait\w*|select_poll\w*|select_epoll\w*"
        r"|select_select\w*|do_sys_poll|ep_poll|do_epoll_wait|do_select|core_sys_select"
        r"|poll_schedule_timeout\w*|io_getevents|io_uring\w*|sched_yield|schedule_hrtimeout\w*"
        r"|kqueue|kevent|uv_\w+|event_base_loop",
    ),
)
