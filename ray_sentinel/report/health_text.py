"""A health report and a node's view as lines of text. Nothing is escaped here: the caller that
prints does so."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.model.health import Health, NodeView
from ray_sentinel.report.words import duration, moment, watts

_GIB = 1 << 30


def health_lines(told: Health) -> Iterator[str]:
    """The report, the verdict first."""
    yield f"{'healthy' if told.healthy else 'NOT HEALTHY'}: {told.verdict}"
    for issue in told.issues:
        yield f"  ! {issue}"
    yield from _gpu(told)
    yield from _ray(told)
    yield from _transport(told)
    yield from _checkpoints(told)
    yield from _progress(told)
    if told.collectors is not None:
        failing = told.collectors.get("failing", {})
        yield f"collectors: {len(failing)} failing" if failing else "collectors: all well"
    if told.logs:
        yield "last errors in the logs"
        for line in told.logs[-8:]:
            yield f"  {line.file}: {line.text}"
    for note in told.notes:
        yield f"note: {note}"


def _gpu(told: Health) -> Iterator[str]:
    if told.gpu is None:
        yield "GPUs: none was seen"
        return
    gpu = told.gpu
    said = [f"{gpu.busy} of {gpu.count} busy", f"{gpu.processes} processes"]
    if gpu.avg_utilization is not None:
        said.append(f"{gpu.avg_utilization:.0f} % on average")
    if gpu.power_watts is not None:
        said.append(watts(gpu.power_watts))
    yield f"GPUs: {', '.join(said)}"


def _ray(told: Health) -> Iterator[str]:
    if told.ray is None:
        return
    ray = told.ray
    yield (
        f"Ray: {ray.gpus_allotted:g} of {ray.gpus_total:g} GPUs and {ray.cpus_allotted:g} of "
        f"{ray.cpus_total:g} CPUs allotted, {len(ray.demands)} requests wait"
    )


def _transport(told: Health) -> Iterator[str]:
    if told.transport is None:
        yield "transport: unknown (NCCL tells it with NCCL_DEBUG=INFO), and no RDMA device"
        return
    seen = told.transport
    how = {"log": "by NCCL's own lines", "counters": "by counters"}.get(seen.by, "")
    used = f"{seen.used} ({how})" if seen.used else "unknown: nothing goes through a device"
    yield f"transport in use: {used}; devices that are there: {', '.join(seen.devices) or 'none'}"


def _checkpoints(told: Health) -> Iterator[str]:
    if told.checkpoints is None:
        return
    saved = told.checkpoints
    said = [f"{saved.count} complete", f"latest step {saved.latest_step}"]
    if saved.age_seconds is not None:
        said.append(f"{duration(saved.age_seconds)} old")
    if saved.interval_steps is not None:
        said.append(f"every {saved.interval_steps} steps")
    said.append(f"{saved.bytes / _GIB:.2f} GiB")
    yield f"checkpoints in {saved.folder}: {', '.join(said)}"
    for problem in saved.problems[:8]:
        yield f"  ! {problem}"


def _progress(told: Health) -> Iterator[str]:
    for job, facts in (told.progress or {}).items():
        age, seconds = facts.get("step_age"), facts.get("step_seconds")
        step = facts.get("step")
        said = [f"{facts.get('state')}", f"step {step}" if step is not None else "no step yet"]
        said += [f"{duration(age)} ago"] if isinstance(age, float) else []
        said += [f"{seconds:.3g} s a step"] if isinstance(seconds, float) else []
        yield f"job {job}: {', '.join(said)}"


def node_lines(view: NodeView) -> Iterator[str]:
    """One node, the trouble first."""
    yield f"{view.host} {view.address} {view.node_id[:12]}".rstrip()
    for name, version in view.versions.items():
        yield f"  {name}: {version}"
    yield from _blocked(view)
    yield from _gpus(view)
    yield from _devices(view)
    if view.kernel:
        yield "kernel log"
        for line in view.kernel:
            when = f"{moment(line.time)} " if line.time is not None else ""
            yield f"  {when}{f'[{line.kind}] ' if line.kind else ''}{line.text}"
    for error in view.errors:
        yield f"log {error.file}: {error.text}"
    for problem in view.problems:
        yield f"note: {problem}"


def _blocked(view: NodeView) -> Iterator[str]:
    yield f"blocked in the kernel (D state): {len(view.blocked) or 'nobody'}"
    for task in view.blocked:
        yield f"  pid {task.pid} tid {task.tid} {task.name} waits in {task.wchan or '?'}"
        for frame in task.stack[:8]:
            yield f"    {frame}"


def _gpus(view: NodeView) -> Iterator[str]:
    yield f"GPUs: {len(view.gpus)}"
    for gpu in view.gpus:
        used = f"{gpu.utilization_percent:.0f} %" if gpu.utilization_percent is not None else "? %"
        memory = _gib(gpu.memory_used_bytes)
        watts = f"{gpu.power_watts:.0f} W" if gpu.power_watts is not None else "? W"
        yield f"  {gpu.index} {gpu.name}: {used}, {memory} used, {watts}"
    for process in view.gpu_processes:
        memory = _gib(process.memory_bytes)
        yield f"  GPU {process.gpu}: pid {process.pid} {process.name}, {memory} used"


def _gib(size: int | None) -> str:
    return "? GiB" if size is None else f"{size / _GIB:.1f} GiB"


def _devices(view: NodeView) -> Iterator[str]:
    for device in view.devices:
        rate = device.bytes_per_second
        moved = f"{rate / 1e6:,.1f} MB/s" if rate is not None else "not counted"
        state = "active" if device.active else "not active"
        yield f"  {device.device}:{device.port} {device.kind}, {state}, {moved}"
