"""Functions that watch a training by its Ray job, here or in a head pod reached by kubectl.

``head_pod`` is the name of a pod, or empty for this machine, a node of the cluster.

>>> from ray_sentinel.monitor import get_training_health, print_training_health
>>> print_training_health(get_training_health(checkpoint_dir="/checkpoints"))  # doctest: +SKIP
"""

from ray_sentinel.monitor.cluster import (
    check_efa_utilization,
    check_gpu_utilization,
    verify_ray_resources,
)
from ray_sentinel.monitor.jobs import (
    check_job_status,
    detect_stall,
    get_current_step,
    get_progress,
    monitor_job,
)
from ray_sentinel.monitor.restart import auto_restart, submit_job_with_resume
from ray_sentinel.monitor.training import (
    get_checkpoints,
    get_training_health,
    print_training_health,
)

__all__ = [
    "auto_restart",
    "check_efa_utilization",
    "check_gpu_utilization",
    "check_job_status",
    "detect_stall",
    "get_checkpoints",
    "get_current_step",
    "get_progress",
    "get_training_health",
    "monitor_job",
    "print_training_health",
    "submit_job_with_resume",
    "verify_ray_resources",
]
