"""A collector's process: ``python -m ray_sentinel.collect.child NAME``.

It never imports ray, and little else: there is one of it per collector on every node. The frames of
``protocol`` come and go over what were stdin and stdout; whatever the collector prints goes to the
log instead. When stdin ends, the runner is gone, and the process ends with its whole group: with
all that the collector has started. A collector that hangs with the interpreter locked could not do
that, so a timer of faulthandler's, which needs no interpreter, ends the process at each deadline
and leaves in the log where it stood.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import msgspec

from ray_sentinel import signals
from ray_sentinel.api import Absent, Collector, NoData, Skip
from ray_sentinel.collect import protocol
from ray_sentinel.collect.descent import Adopted, kill_below
from ray_sentinel.collect.gather import Gathering, declared
from ray_sentinel.collect.loading import make, module_of
from ray_sentinel.errors import ConfigError, SentinelError

LONGEST_PAUSE = 86_400.0
"""Longest pause in seconds that a collector may ask for; a longer one is ignored."""
_OOM_SCORE = "800"
"""The ``oom_score_adj`` of a collector: if memory runs out, the kernel kills it before the
training."""
_NICENESS = 10
"""Niceness of a collector: if the CPUs are busy, it gets about a tenth of the time that a process
of the training gets."""


class Channel:
    """Both directions to the runner. A thread of its own receives, so that the end of stdin is
    noticed whatever the collector does."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._lock = threading.Lock()
        self.inbox: SimpleQueue[protocol.ToChild] = SimpleQueue()

    def start(self) -> None:
        """Begin to receive."""
        threading.Thread(target=self._receive, name="receive", daemon=True).start()

    def send(self, message: protocol.FromChild) -> None:
        """Send one whole message."""
        data = memoryview(protocol.encode(message))
        with self._lock:
            while data:
                data = data[os.write(self._sink, data) :]

    def _receive(self) -> None:
        frames: protocol.Frames[protocol.ToChild] = protocol.Frames(protocol.ToChild)
        try:
            while data := os.read(self._source, 1 << 16):
                for message in frames.feed(data):
                    self.inbox.put(message)
        finally:
            _end_group()


class _Warnings(logging.Handler):
    """Keeps the warnings of one run, and those from before the first: they are what the collector
    could not read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < 100:
            self.texts.append(record.getMessage())


class _Once(logging.Filter):
    """Lets a text through the first time and whenever it has changed: a collector that cannot read
    a file says so in each cycle."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno < logging.WARNING or len(self._seen) > 1000:
            return True
        new = text not in self._seen
        self._seen.add(text)
        return new


def _end_group() -> None:
    kill_below(os.getpid())
    # Programs that we started ourselves lead groups of their own.
    if "ray_sentinel.process" in sys.modules:
        sys.modules["ray_sentinel.process"].end_all()
    signals.end_own_group()


def _channel() -> Channel:
    """Take stdin and stdout for the frames; what is printed from now on goes to stderr."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return Channel(source, sink)


def _lower_priority() -> None:
    """Set this process to be killed first if memory runs out, and to yield if the CPUs are busy."""
    os.nice(_NICENESS)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE)
    except OSError:
        # A container may forbid it: then we are as likely a victim as the training.
        logging.getLogger(__name__).info("oom_score_adj cannot be set")


def _explain(error: BaseException) -> str:
    if isinstance(error, SentinelError):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is not None:
        code = frame.tb_frame.f_code
        text += f" ({os.path.basename(code.co_filename)}:{frame.tb_lineno} in {code.co_name})"
    return text[:1000]


class CollectorLoop:
    """The collector and its runs."""

    def __init__(
        self, channel: Channel, setup: protocol.Setup, collector: Collector, warnings: _Warnings
    ) -> None:
        self._channel, self._setup, self._collector = channel, setup, collector
        self._metrics = declared(collector.metrics, module_of(collector))
        self._warnings = warnings
        if hasattr(collector, "on_start"):
            collector.on_start = lambda pid: channel.send(protocol.ProgramStarted(pid))

    def hello(self) -> protocol.Hello:
        """What the runner must know about the collector."""
        return protocol.Hello(
            interval=float(self._collector.interval),
            deadline=float(self._collector.deadline),
            metrics=tuple(metric.name for metric in self._collector.metrics),
            wants_cluster=bool(self._collector.wants_cluster),
        )

    def run(self, ask: protocol.Ask) -> protocol.RunAnswer:
        """Run one collection, and catch whatever it raises."""
        collector = self._collector
        collector.context = msgspec.structs.replace(
            collector.context, ranks=ask.ranks, handed_on=ask.handed_on, cluster=ask.cluster
        )
        gathering = Gathering(
            self._metrics,
            self._setup.limits,
            lambda event: self._channel.send(protocol.Happened((event,))),
        )
        collector.pause_seconds = 0.0
        outcome, message = self._collect(gathering, ask.deadline)
        for text in (*_problems_of(collector), *self._warnings.texts):
            gathering.problem(text)
        self._warnings.texts.clear()
        return protocol.RunAnswer(
            sequence=ask.sequence,
            outcome=outcome,
            message=message,
            families=gathering.families() if outcome == "ok" else (),
            problems=tuple(gathering.problems),
            pause=_seconds(collector.pause_seconds),
        )

    def _collect(self, gathering: Gathering, deadline: float) -> tuple[protocol.Outcome, str]:
        faulthandler.dump_traceback_later(deadline, exit=True)
        try:
            items = self._collector.collect()
            gathering.add_all(items if items is not None else ())
        except NoData as error:
            return "absent" if isinstance(error, Absent) else "nodata", str(error)
        except Skip as error:
            return "skip", str(error) or "it asked to be left out"
        except TimeoutError as error:
            return "timeout", str(error)
        except (Exception, SystemExit) as error:  # a collector may raise anything
            logging.getLogger(__name__).exception("the collection failed")
            return "error", _explain(error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        return "ok", ""

    def close(self) -> None:
        """Let the collector release its resources."""
        self._collector.close()


def _seconds(told: object) -> float:
    """A pause that can be waited for; its author may have set anything."""
    usable = isinstance(told, (int, float)) and 0.0 < told <= LONGEST_PAUSE
    return float(told) if usable else 0.0  # type: ignore[arg-type]


def _problems_of(collector: Collector) -> list[str]:
    """What it could not read in this run, if it keeps such a list; its author may have set
    anything."""
    held = getattr(collector, "problems", ())
    if isinstance(held, str):
        return [held]
    return [str(problem) for problem in held] if isinstance(held, (list, tuple, set)) else []


def _made(channel: Channel, setup: protocol.Setup) -> CollectorLoop | None:
    """The worker; None if the collector could not be made, which is reported to the runner."""
    warnings = _Warnings()
    logging.getLogger().addHandler(warnings)
    try:
        return CollectorLoop(channel, setup, make(setup), warnings)
    except Skip as error:
        # It may have asked for it because it could not read what it looked for.
        message, problems = str(error) or "it asked for it", tuple(warnings.texts)
        channel.send(
            protocol.RunAnswer(sequence=0, outcome="skip", message=message, problems=problems)
        )
    except ConfigError as error:
        logging.getLogger(__name__).error("%s", error)
        channel.send(
            protocol.RunAnswer(sequence=0, outcome="error", message=str(error), misconfigured=True)
        )
    except (Exception, SystemExit) as error:  # so may its import
        logging.getLogger(__name__).exception("the collector cannot be made")
        channel.send(protocol.RunAnswer(sequence=0, outcome="error", message=_explain(error)))
    return None


def _messages(inbox: SimpleQueue[protocol.ToChild]) -> Iterator[protocol.ToChild]:
    while not isinstance(message := inbox.get(), protocol.StopCollector):
        yield message


def main() -> int:
    """Serve the runner until it sends a stop."""
    channel = _channel()
    faulthandler.enable()
    handler = logging.StreamHandler()
    handler.addFilter(_Once())
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", handlers=[handler])
    # Ctrl-C in a terminal is for the runner; we end with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopted = Adopted()
    channel.start()
    worker: CollectorLoop | None = None
    for message in _messages(channel.inbox):
        if isinstance(message, protocol.Setup):
            if message.live:
                _lower_priority()
            worker = _made(channel, message)
            if worker is None:
                return 1
            channel.send(worker.hello())
        elif isinstance(message, protocol.Ask) and worker is not None:
            answer = worker.run(message)
            channel.send(answer)
            adopted.reap()
            if answer.outcome == "skip":
                break
    if worker is not None:
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
