"""Runs every collector of this node in a process of its own, and serves their last results.

One thread does it all through a selector: it starts processes, asks them, reads their answers and
kills those that are late. It never waits for a disk that may hang: two threads of their own read
plugin folders and write logs.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from ray_sentinel.clock import SystemClock
from ray_sentinel.collect import selfmetrics
from ray_sentinel.collect.child_registry import ChildRecord, ChildRegistry, kill
from ray_sentinel.collect.discovery import Plugin, entry_points
from ray_sentinel.collect.plugins import PluginFolders, install_plugin
from ray_sentinel.collect.protocol import OutputLimits, Roots
from ray_sentinel.collect.runner_context import RunnerContext
from ray_sentinel.collect.slots import Slots
from ray_sentinel.config import Config
from ray_sentinel.log_files import LogFiles
from ray_sentinel.masking import mask
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import CollectorStatus, Event, Family
from ray_sentinel.model.ray_cluster import RayCluster

# One bounded log file per collector. The folder may hang: see ``log_files``.

MAX_BYTES = 1 << 20
"""Most bytes of one log file; then it becomes ``.1`` and a new one begins, so a collector's logs
take at most twice as much."""


class Logbook:
    """Writes lines to ``folder/collector-NAME.log``; nothing if ``folder`` is None."""

    def __init__(self, folder: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._files = LogFiles(folder, max_bytes=max_bytes) if folder is not None else None

    def write(self, name: str, text: str) -> None:
        """Queue a line of collector ``name``; never waits."""
        if self._files is not None:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._files.write(f"collector-{name}", f"{stamp} {mask(text)}")

    @property
    def problem(self) -> str:
        """Problems with these logs, for people; empty if there are none."""
        return self._files.problem if self._files is not None else ""

    def close(self, timeout: float = 1.0) -> None:
        """Write what is queued, for at most ``timeout`` seconds."""
        if self._files is not None:
            self._files.close(timeout)


log = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""Seconds that a change waits for others, so that one cycle is rendered once."""
PUBLISH_SECONDS = 10.0
"""Longest time in seconds between two publications: a longer silence would mean that the runner is
dead."""
STOP_SECONDS = 4.0
START_SPACING = 0.2
"""Seconds between the first starts of two installed collectors, so that a node on which a training
begins need not start a dozen interpreters at once."""


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The folders and limits of a runner."""

    host: str
    run_dir: Path
    """A folder of our own on a local disk, the same for every life of this node's agent."""
    log_dir: Path | None = None
    """Folder of the collectors' logs; None to write no logs."""
    plugin_dirs: tuple[Path, ...] = ()
    """The user's plugin folders; ``run_dir/plugins``, for what is pushed, comes after them."""
    roots: Roots = Roots()
    start_deadline: float = 30.0
    first_start: float = 0.0
    """Seconds until the first installed collector is started."""
    plugin_interval: float = 2.0
    """Seconds between two looks at the plugin folders."""
    limits: OutputLimits = OutputLimits()
    environ: Mapping[str, str] = os.environ
    installed: bool = True
    """Whether the collectors of installed packages are run too."""


class Runner:
    """The collectors of one node. All public methods may be called from any thread.

    ``on_events`` gets each event once; it is called on the runner's thread and must return quickly.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        config: Config,
        *,
        on_events: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self._settings = settings
        self.families: tuple[Family, ...] = ()
        """All that can be served now, without the ``host`` label."""
        self._clock = SystemClock()
        self._selector = selectors.DefaultSelector()
        self._children = ChildRegistry(settings.run_dir / "children")
        self._logbook = Logbook(settings.log_dir)
        self._around = self._surroundings(config, on_events)
        self._pushed = settings.run_dir / "plugins"
        self._folders = PluginFolders(
            (*settings.plugin_dirs, self._pushed), settings.run_dir / "versions"
        )
        self._slots = Slots(self._around, config.collectors)
        self._statuses: tuple[CollectorStatus, ...] = ()
        self._published = 0.0
        self._changed_at: float | None = None
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = threading.Event()
        self._look = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="collector-runner", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="plugin-watcher", daemon=True)

    def _surroundings(
        self, config: Config, on_events: Callable[[tuple[Event, ...]], None]
    ) -> RunnerContext:
        settings = self._settings
        return RunnerContext(
            host=settings.host,
            clock=self._clock,
            selector=self._selector,
            children=self._children,
            environ=settings.environ,
            write_log=self._logbook.write,
            on_events=on_events,
            roots=settings.roots,
            state_dir=settings.run_dir / "state",
            log_dir=Path(config.log_dir) if config.log_dir else None,
            limits=settings.limits,
            start_deadline=settings.start_deadline,
        )

    def start(self) -> None:
        """Start. What an earlier runner left running is ended first."""
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._call(self._begin)
        self._thread.start()
        self._watcher.start()

    def stop(self) -> None:
        """End all collectors, and wait until they have, for a few seconds at most."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._look.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS + 2)
            self._watcher.join(1.0)
        self._logbook.close()
        if not self._thread.is_alive() and not self._watcher.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)

    @property
    def log_problem(self) -> str:
        """Why lines of the collectors' logs are missing; empty if none are."""
        return self._logbook.problem

    def set_ranks(self, ranks: Sequence[Rank]) -> None:
        """Set this node's ranks for the following runs."""
        self._around.ranks = tuple(ranks)

    def set_handed_on(self, moment: float | None) -> None:
        """Set when samples with a time of their own were last read, for the following runs."""
        self._around.handed_on = moment

    def set_cluster(self, cluster: RayCluster) -> None:
        """Set what Ray's control store reported, for the following runs."""
        self._around.cluster = lambda: cluster

    def statuses(self) -> tuple[CollectorStatus, ...]:
        """The status of every collector, by name."""
        return self._statuses

    def refused_plugins(self) -> tuple[str, ...]:
        """The plugin files and folders that are not run because other users can write to them."""
        return self._slots.refused_files

    def install_plugin(self, name: str, data: bytes) -> Path:
        """Put a plugin on this node, without any shared file system; it runs within a moment.

        Raises InputError for a bad name, or if the disk refuses it.
        """
        path = install_plugin(self._pushed, name, data)
        self._look.set()
        return path

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._guarded_turn()
        self._finish()

    def _guarded_turn(self) -> None:
        try:
            self._turn(self._clock.monotonic())
        except Exception:  # all that watches this node's collectors must outlive its own faults
            log.exception("the runner failed and goes on")
            self._clock.sleep(1.0)

    def _begin(self) -> None:
        self._slots.leftovers = self._end_leftovers()
        begun, wait = self._clock.monotonic(), self._settings.first_start
        for source in entry_points() if self._settings.installed else ():
            self._slots.add(source, wait)
            wait += START_SPACING
        self._slots.plugins_from = begun + wait

    def _end_leftovers(self) -> list[ChildRecord]:
        """Kill what an earlier runner left; what cannot be killed is returned."""
        records = self._children.leftovers()
        for record in records:
            for group in (record.leader, *record.groups):
                kill(group)
        if records:
            self._clock.sleep(0.2)
        return self._children.leftovers()

    def _turn(self, now: float) -> None:
        pause = min(self._publish_at(), self._slots.at) - now
        for key, _ in self._selector.select(min(max(0.0, pause), 5.0)):
            key.data()
        now = self._clock.monotonic()
        if self._slots.step(now):
            self._statuses = self._slots.statuses()
            self._changed_at = now if self._changed_at is None else self._changed_at
        if self._publish_at() <= now:
            self._changed_at, self._published = None, now
            self._statuses = self._slots.statuses()
            self.families = (*self._slots.families(), *selfmetrics.families(self._statuses))

    def _publish_at(self) -> float:
        regular = self._published + PUBLISH_SECONDS
        if self._changed_at is None:
            return regular
        return min(regular, self._changed_at + GATHER_SECONDS)

    def _update_plugins(self, plugins: tuple[Plugin, ...], problem: str) -> None:
        now = self._clock.monotonic()
        self._slots.update_plugins(plugins, problem, now)
        self._changed_at = now if self._changed_at is None else self._changed_at

    def _finish(self) -> None:
        now = self._clock.monotonic()
        last = now + STOP_SECONDS
        self._slots.retire(now)
        while not self._slots.empty and now < last:
            for key, _ in self._selector.select(0.02):
                key.data()
            now = self._clock.monotonic()
            self._slots.step(now)
        self._selector.close()

    def _watch(self) -> None:
        """Runs in the other thread: reads the plugin folders and hands on what has changed."""
        # Copies of plugins that an earlier runner kept: nobody runs them any more.
        shutil.rmtree(self._settings.run_dir / "versions", ignore_errors=True)
        last: tuple[tuple[Plugin, ...], str] | None = None
        while not self._stopping.is_set():
            found = self._scan()
            if found is not None and found != last:
                last = found
                self._call(partial(self._update_plugins, *found))
            self._look.wait(self._settings.plugin_interval)
            self._look.clear()

    def _scan(self) -> tuple[tuple[Plugin, ...], str] | None:
        try:
            return self._folders.scan(), self._folders.problem
        except Exception:  # anybody's files: what runs goes on, and the folders are looked at again
            log.exception("the plugin folders could not be looked at")
            return None

    def _call(self, function: Callable[[], None]) -> None:
        """Have the runner's thread call ``function``."""
        self._inbox.put(function)
        if not self._stopping.is_set():
            self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            pass  # it is awake already

    def _woken(self) -> None:
        os.read(self._wake_read, 4096)
        while True:
            try:
                function = self._inbox.get_nowait()
            except Empty:
                return
            function()
