"""Known functions of Python libraries.

The function's last name must match in full *and* its file be found by the second pattern: anybody
may call a function ``all_reduce``. Rows are tried in order, the first that matches a
frame gives its meaning. To teach a new library, add a row.
"""

from __future__ import annotations

from ray_sentinel.evidence.stacks.frames import meanings as m
from ray_sentinel.evidence.stacks.frames.meanings import FramePattern

_C10D = r"(^|/)torch/distributed/(distributed_c10d|_functional_collectives|nn/functional)\.py$"
_DYNAMO = r"(^|/)torch/_dynamo/(convert_frame|output_graph|symbolic_convert|repro/\w+)\.py$"
_INDUCTOR = (
    r"(^|/)torch/_inductor/(compile_fx\w*|graph|scheduler|async_compile|select_algorithm|lowering"
    r"|autotune_process|codegen/.+|compile_worker/.+|cpp_builder|fx_passes/.+|pattern_matcher)\.py$"
)

PYTHON: tuple[FramePattern, ...] = (
    # Joining and leaving the job.
    FramePattern(
        m.JOINING,
        r"init_process_group|_store_based_barrier|_?rendezvous\w*|_create_(c10d|tcp)_?store"
        r"|_tcp_rendezvous\w*|_env_rendezvous\w*|_torchelastic_use_agent_store|next_rendezvous",
        r"(^|/)torch/distributed/(distributed_c10d|rendezvous|elastic/rendezvous/\w+)\.py$",
    ),
    FramePattern(
        m.JOINING, r"initialize|wait_at_barrier", r"(^|/)jax/_src/(distributed|clusters/\w+)\.py$"
    ),
    FramePattern(
        m.JOINING,
        r"barrier|synchronize|get_all|_barrier_\w+",
        r"(^|/)torch/distributed/elastic/utils/store\.py$",
    ),
    FramePattern(
        m.COMMUNICATOR,
        r"new_group|_new_process_group_helper|split_group|new_subgroups\w*"
        r"|_new_group_with_tag",
        _C10D,
    ),
    FramePattern(
        m.COMMUNICATOR,
        r"_?init_device_mesh|_setup_\w*(mesh|group)\w*|_init_process_groups",
        r"(^|/)torch/distributed/(device_mesh|_tensor/.+|tensor/.+)\.py$",
    ),
    FramePattern(
        m.CLOSING, r"destroy_process_group|_shutdown_backend|_abort_process_group|abort\w*", _C10D
    ),
    # Collectives.
    FramePattern(m.COLLECTIVE, rf"_?(i|batch_i|monitored_)?(?i:({m.OPERATIONS})\w*)", _C10D),
    FramePattern(m.COLLECTIVE, r"wait_tensor|_?wait_\w+|wait", _C10D, "a collective"),
    FramePattern(
        m.COLLECTIVE,
        r"wait",
        r"(^|/)deepspeed/runtime/zero/partition_parameters\.py$",
        "all_gather",
    ),
    FramePattern(
        m.COLLECTIVE,
        rf"_?(i|batch_i|monitored_|in_?place_)?(?i:({m.OPERATIONS})\w*)",
        r"(^|/)(deepspeed/(comm/|runtime/(comm/|zero/partition_parameters))|horovod/"
        r"|ray/util/collective/|mpi4py/|megatron/core/"
        r"(tensor_parallel|pipeline_parallel|distributed)/|colossalai/|fairscale/|bagua/"
        r"|vllm/distributed/|sglang/srt/(layers/dp_attention|distributed|utils)"
        r"|oneccl_bindings|jax/experimental/multihost_utils|torch_xla/core/xla_model"
        r"|torch/nn/parallel/|torch/distributed/(fsdp|_composable|tensor|pipelining|algorithms"
        r"|_symmetric_memory|_tools|utils|optim)|accelerate/utils/operations|tensorrt_llm/"
        r"|transformer_engine/|lightning/fabric/|apex/parallel/)",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"synchronize|poll|wait_for_everyone|sync_global_devices|process_allgather|_communicate"
        r"|_?p2p_ops|_batched_p2p_ops|(recv|send)_(forward|backward)\w*|mesh_reduce|rendezvous"
        r"|mark_step|acquire_read|acquire_write|dequeue|wait_until_ready",
        r"(^|/)(horovod/|jax/experimental/multihost_utils|megatron/core/pipeline_parallel/"
        r"|torch_xla/core/xla_model|vllm/distributed/|accelerate/(state|accelerator)\.py"
        r"|deepspeed/runtime/pipe/p2p|torch/distributed/pipelining/)",
        "a collective",
    ),
    # DeepEP's host code spins until all have said how much they send.
    FramePattern(
        m.COLLECTIVE,
        r"((intra|inter)node_|low_latency_)?(dispatch|combine)",
        r"(^|/)deep_ep/buffer\.py$",
        "all_to_all",
    ),
    # py-spy cuts a file's name at the first folder without __init__.py: sglang/srt has none.
    FramePattern(
        m.COLLECTIVE,
        rf"_?(in_?place_|tensor_model_parallel_)?(?i:({m.OPERATIONS})\w*)",
        r"^(distributed/(parallel_state|communication_op|device_communicators/\w+)"
        r"|layers/dp_attention)\.py$",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"point_to_point_pyobj|_pp_recv_\w+|_pp_commit_\w+",
        r"(^|/)(utils(/common)?|scheduler_pp_mixin)\.py$",
        "recv",
    ),
    FramePattern(
        m.COLLECTIVE,
        r"_(verify_param_shape_across_processes|sync_module_states|sync_params\w*)",
        r"(^|/)torch/(distributed/utils|nn/parallel/distributed)\.py$",
        "broadcast",
    ),
    # The device.
    FramePattern(
        m.CAPTURE,
        r"capture_(begin|end)|__exit__|capture\w*|_capture\w*|warm_?up\w*",
        r"(^|/)(torch/cuda/graphs|.*cuda_?graph\w*|.*/model_runner)\.py$",
    ),
    FramePattern(
        m.DEVICE,
        r"synchronize|_?wait(_event|_stream)?|query|elapsed_time",
        r"(^|/)(torch|torch_npu|torch_xla|intel_extension_for_pytorch)/(cuda|hip|xpu|npu|mps"
        r"|accelerator|core)/",
    ),
    FramePattern(
        m.DEVICE,
        r"block_until_ready|_value|__array__|device_get|_device_get",
        r"(^|/)(jax|jaxlib)/",
    ),
    FramePattern(
        m.DEVICE,
        r"synchronize",
        r"(^|/)(cupy|numba|pycuda|paddle|habana_frameworks|torch_\w+)/",
    ),
    # Input.
    FramePattern(
        m.INPUT,
        r"_next_data|_get_data|_try_get_data|__next__|_next_index|_reset|__init__|__iter__"
        r"|_process_data|_try_put_index|_shutdown_worker\w*",
        r"(^|/)torch/utils/data/dataloader\.py$",
    ),
    FramePattern(
        m.INPUT,
        r".*",
        r"(^|/)(torch/utils/data/(_utils/(fetch|pin_memory|collate)|datapipes/.+"
        r"|dataset|sampler)\.py$|torchdata/|webdataset/|streaming/base/|datasets/(arrow_dataset"
        r"|iterable_dataset|formatting|table|load|builder)|petastorm/|fairseq/data/"
        # What reads a data set of Ray Data; the user's functions run below its ``execution``.
        r"|ray/data/(iterator|_internal/(iterator|block_batching))"
        r"|megatron/core/datasets/"
        r"|nvidia/dali/|ffcv/|grain/|tensorflow/python/data/|tensorflow_datasets/|litdata/|dali/)",
    ),
    # Checkpoints and storage.
    FramePattern(
        m.CHECKPOINT,
        r"_?(legacy_)?(save|load)\w*|write_record|_write\w*|.*write.*|.*read.*|__exit__",
        r"(^|/)torch/serialization\.py$",
    ),
    FramePattern(
        m.CHECKPOINT,
        r".*",
        r"(^|/)(torch/distributed/checkpoint/|safetensors/|orbax/|tensorstore/"
        r"|flax/training/(checkpoints|orbax_utils)|deepspeed/runtime/checkpoint_engine/"
        r"|deepspeed/checkpoint/|megatron/(training|core)/checkpointing|(\w+/)?dist_checkpointing/"
        r"|megatron/checkpointing|torchsnapshot/|nemo/.*checkpoint|composer/checkpoint/"
        r"|composer/utils/checkpoint|torchtitan/components/checkpoint|torchtitan/checkpoint"
        r"|ray/train/_checkpoint|ray/train/.*(storage|checkpoint)|lightning/.*checkpoint"
        r"|pytorch_lightning/.*checkpoint|lightning_fabric/.*checkpoint|fastsafetensors/)",
    ),
    FramePattern(
        m.CHECKPOINT,
        r"_?(save|load)_?\w*(checkpoint|model|optimizer|pretrained|state|weights)\w*"
        r"|from_pretrained|_rotate_checkpoints|load_weights",
        r"(^|/)(transformers|deepspeed|accelerate|lightning|pytorch_lightning|composer|fairseq"
        r"|vllm|sglang|megatron|nemo|keras|peft|diffusers|trl)/",
    ),
    FramePattern(
        m.REMOTE,
        r".*",
        r"(^|/)(fsspec|s3fs|gcsfs|adlfs|boto3|botocore|s3transfer|smart_open|hdfs"
        r"|google/cloud/storage|huggingface_hub|hf_transfer|azure/storage|minio|pyarrow/fs"
        r"|oss2|obstore|modelscope/hub)(/|\.py$)",
    ),
    FramePattern(
        m.STORAGE,
        r"copy\w*|rmtree|move|_fastcopy\w*|extractall|_extract\w*|make_archive",
        r"(^|/)(shutil|zipfile(/__init__)?|tarfile)\.py$",
    ),
    # Their bodies are system calls on a file's name. Since 3.11 some are frozen into Python.
    FramePattern(
        m.STORAGE,
        r"l?stat|l?exists|is_(file|dir|symlink|mount)|is(file|dir|link|mount)|getsize"
        r"|get[mac]time|_?iterdir|_?scandir|_?listdir|_?r?i?glob\w*|makedirs|mkdir|touch|unlink"
        r"|rename",
        r"(^|/python3\.\d+t?/)(pathlib(/\w+)?|genericpath|posixpath|glob|os)\.py$"
        r"|^<frozen (genericpath|posixpath|os)>$",
    ),
    # Compilation.
    FramePattern(
        m.BUILD_LOCK,
        r"wait|acquire|_acquire|__enter__|lock",
        r"(^|/)(torch/utils/file_baton|filelock/\w+|datasets/utils/_?filelock|portalocker/\w+"
        r"|fasteners/\w+)\.py$",
    ),
    FramePattern(m.COMPILE, r".*", rf"{_DYNAMO}|{_INDUCTOR}"),
    FramePattern(
        m.COMPILE,
        r"compile\w*|_?build\w*|load\w*|make_(cubin|ptx|ir|launcher)|run_autotuning"
        r"|benchmark\w*|_bench|precompile\w*|_jit_compile|_write_ninja\w*|_run_ninja\w*"
        r"|_init_handles|autotune\w*|warmup|do_bench\w*|create_binder|_do_compile",
        r"(^|/)(triton/|torch/utils/cpp_extension|torch/_inductor/(runtime|codecache|triton)"
        r"|torch/_functorch/|deep_gemm/jit|flashinfer/jit|tilelang/|tvm/|cutlass/|cupy/_?cuda)",
    ),
    FramePattern(
        m.COMPILE,
        r"\w*compile\w*|_?lower\w*|trace_to_jaxpr\w*",
        r"(^|/)jax/_src/(compiler|pjit|stages|dispatch|interpreters/(pxla|mlir|partial_eval)"
        r"|compilation_cache)\.py$",
    ),
    # Where steps meet the device without a frame of their own for it: gradients that are put
    # apart or reduced, their norms, overflow checks, the optimizer's update.
    FramePattern(
        m.STEP,
        r"\w*(partition|reduce|ipg|overflow|norm|unscale|clip|grad|bucket|step|copy|swap|offload"
        r"|update|found_inf|fetch|release)\w*",
        r"(^|/)(deepspeed/runtime/(zero/|fp16/|bf16_optimizer|utils|engine|pipe/engine)"
        r"|megatron/core/(optimizer|distributed)/|megatron/optimizer/|apex/(optimizers|multi_tensor)"
        r"|torch/(amp/grad_scaler|cuda/amp/|nn/utils/clip_grad|utils/_foreach_utils"
        r"|distributed/(fsdp|optim|_composable)/)|fairscale/optim|colossalai/(zero|nn/optimizer)"
        r"|transformer_engine/|bitsandbytes/|accelerate/(optimizer|accelerator))",
    ),
    FramePattern(m.STEP, r"\w+", r"(^|/)torch/optim/\w+\.py$"),
    # Other threads, processes and machines.
    FramePattern(m.BACKWARD, r"_engine_run_backward", r"(^|/)torch/autograd/graph\.py$"),
    FramePattern(m.BACKWARD, r"backward|grad", r"(^|/)torch/(autograd/__init__|_tensor)\.py$"),
    FramePattern(
        m.SESSION,
        r"_call_tf_sessionrun|_run_fn|_do_call|quick_execute|call_function|_call_flat",
        r"(^|/)tensorflow/python/(client/session|eager/(execute|context|function"
        r"|polymorphic_function/\w+))\.py$",
    ),
    FramePattern(m.NO_REQUEST, r"_process_input_queue", r"(^|/)vllm/v1/engine/core\.py$"),
    FramePattern(m.TASKLESS, r"main_loop", r"(^|/)ray/(_private/)?worker\.py$"),
    FramePattern(
        m.IDLE, r"run_forever|_run_once|run_until_complete", r"(^|/)(asyncio/base_events|uvloop/.*)"
    ),
    FramePattern(m.IDLE, r"run", r"(^|/)asyncio/runners\.py$"),  # uvloop has no frames of its own
    FramePattern(m.IDLE, r"serve_forever|handle_request", r"(^|/)socketserver\.py$"),
    FramePattern(
        m.RAY,
        r"get|wait|get_objects|_get\w*|wait_for|recv|connect|init",
        r"(^|/)ray/((_private/)?worker|_raylet"
        r"|util/queue|_private/client_mode_hook|util/client/.+|serve/.+)\.(py|pyx)$",
    ),
    FramePattern(m.JOIN, r"join|_wait_for_tstate_lock|_join\w*|_shutdown", r"(^|/)threading\.py$"),
    FramePattern(
        m.CHILD,
        r"join|wait|poll|_try_wait|_wait|communicate|_communicate",
        r"(^|/)(subprocess|multiprocessing/(process|popen_\w+))\.py$",
    ),
    FramePattern(
        m.FUTURE,
        r"result|wait|as_completed|exception|__exit__|shutdown",
        r"(^|/)concurrent/futures/\w+\.py$",
    ),
    FramePattern(
        m.QUEUE, r"get|put|join", r"(^|/)(queue|multiprocessing/(queues|managers|pool))\.py$"
    ),
    # For a queue, but for a child's end too: the frame outside of it says for which.
    FramePattern(m.POLL, r"wait", r"(^|/)multiprocessing/connection\.py$"),
    FramePattern(
        m.QUEUE,
        r"get|_recv|recv\w*|_recv_bytes|wait|poll|_poll|accept",
        r"(^|/)multiprocessing/(connection|pool)\.py$",
    ),
    FramePattern(
        m.IMPORT_LOCK,
        r"acquire|has_deadlock|_has_deadlocked|_lock_unlock_module|__enter__",
        r"^<frozen importlib\._bootstrap>",
    ),
    FramePattern(
        m.LOCK, r"__enter__|acquire\w*", r"(^|/)(threading|multiprocessing/synchronize)\.py$"
    ),
    FramePattern(m.LOCK, r"acquire|_acquireLock", r"(^|/)logging/__init__\.py$"),
    # A breakpoint() that was left in the code.
    FramePattern(m.TYPING, r"_?cmdloop|interaction|raw_input", r"(^|/)(pdb|cmd|code)\.py$"),
    FramePattern(m.EVENT, r"wait|wait_for", r"(^|/)(threading|multiprocessing/synchronize)\.py$"),
    FramePattern(m.SLEEP, r"sleep\w*", r"(^|/)tenacity/\w+\.py$|(^|/)(backoff|retrying)\b"),
    FramePattern(
        m.NETWORK,
        r".*",
        r"(^|/)(socket|ssl|http/client|urllib/request|socketserver)\.py$"
        # Users have folders of such names too.
        r"|(^|(site|dist)-packages/|_vendor/|thirdparty_files/)(urllib3|requests|httpx|httpcore|aiohttp|grpc|zmq|websocket\w*|redis|etcd3?"
        r"|pika|paramiko|consul|kubernetes)/",
    ),
    FramePattern(m.POLL, r"select|_select", r"(^|/)selectors\.py$"),
    FramePattern(
        m.IMPORT,
        r"_find_and_load\w*|_load_unlocked|exec_module|get_data|_gcd_import|get_code"
        r"|_call_with_frames_removed|import_module|path_stats|_fill_cache|find_spec",
        r"^<frozen importlib|(^|/)importlib/",
    ),
)
