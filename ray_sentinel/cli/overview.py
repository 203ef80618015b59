"""The list of all commands, by what one wants to do; and which one was meant by a mistyped word."""

from __future__ import annotations

import argparse
from typing import NamedTuple

FOOT = """\
Every command has --help, which tells its exit codes (0 all is well, 1 a problem was found, 2 wrong
usage, 3 something needed was not reached), and nearly all have --json for programs.
"""

OTHER_NAMES = {
    "check": "doctor",
    "hosts": "status",
    "list": "status",
    "nodes": "status",
    "preflight": "doctor",
    "ps": "status",
    "ranks": "status",
    "show": "incidents",
    "start": "up",
    "stop": "down",
    "supervise": "run",
    "watch": "top",
    "why": "incidents",
}
"""Words that people try first, and the command that does it."""


class CommandEntry(NamedTuple):
    """One command: a module of ``cli/commands`` with its name."""

    name: str
    help: str
    """What it does, in a line, for the list of all commands."""
    example: str


GROUPS = {
    "watch a job": (
        CommandEntry(
            "demo",
            "watch a real training job hang, and be told which rank did it",
            "ray-sentinel demo",
        ),
        CommandEntry("down", "stop watching, and leave nothing behind", "ray-sentinel down"),
        CommandEntry(
            "run",
            "run a command and restart it from its checkpoints",
            "ray-sentinel run --checkpoint-dir /ckpt -- torchrun train.py",
        ),
        CommandEntry(
            "up", "watch the Ray cluster, every node of it", "ray-sentinel up --log-dir /shared/job"
        ),
    ),
    "look while it runs": (
        CommandEntry("dump", "capture the stacks of a running job now", "ray-sentinel dump"),
        CommandEntry(
            "export",
            "write what ranks and roles did in the last hour, for Perfetto",
            "ray-sentinel export perfetto --to lanes.json",
        ),
        CommandEntry(
            "health",
            "check the health of a training, its GPUs and its transport",
            "ray-sentinel health",
        ),
        CommandEntry(
            "incidents",
            "list incidents, show one, or judge recorded events again",
            "ray-sentinel incidents show 0001",
        ),
        CommandEntry(
            "inspect",
            "look at one node: blocked processes, kernel log, GPUs, versions",
            "ray-sentinel inspect node-7",
        ),
        CommandEntry(
            "logs", "find, show and follow a job's logs", "ray-sentinel logs --rank 3 --tail 50"
        ),
        CommandEntry(
            "stacks",
            "show all stacks of the running jobs, merged, and who waits for whom",
            "ray-sentinel stacks",
        ),
        CommandEntry(
            "status", "show jobs, ranks, nodes and the verdict", "ray-sentinel status --watch"
        ),
        CommandEntry(
            "top", "watch jobs, ranks, nodes and GPUs live on the terminal", "ray-sentinel top"
        ),
    ),
    "explain after the fact, from files anywhere": (
        CommandEntry(
            "compare",
            "compare jobs over the steps that they have in common",
            "ray-sentinel compare /jobs/1233 /jobs/1234",
        ),
        CommandEntry(
            "diagnose",
            "find the cause in a job's time series",
            "ray-sentinel diagnose /jobs/1234 --report diagnosis.html",
        ),
        CommandEntry(
            "explain",
            "explain flight-recorder dumps, stacks and other evidence in files",
            "ray-sentinel explain folder /evidence",
        ),
        CommandEntry(
            "triage",
            "find out from a job's logs what happened to it",
            "ray-sentinel triage /logs/job",
        ),
    ),
    "before a run": (
        CommandEntry(
            "collect",
            "run a collector once, on this machine, and print its metrics",
            "ray-sentinel collect host",
        ),
        CommandEntry(
            "doctor", "check nodes, network, GPUs and settings before a run", "ray-sentinel doctor"
        ),
    ),
    "operate": (
        CommandEntry("agents", "restart the agent on a node", "ray-sentinel agents restart node-7"),
        CommandEntry(
            "completion",
            "print the completion script for a shell",
            "source <(ray-sentinel completion bash)",
        ),
        CommandEntry(
            "dashboards",
            "write dashboards for Grafana",
            "ray-sentinel dashboards export dashboards/",
        ),
        CommandEntry(
            "plugins",
            "list, check and push collectors, installed or your own",
            "ray-sentinel plugins push my_collector.py",
        ),
        CommandEntry(
            "prometheus",
            "run a Prometheus for a job, view its data, or configure your own",
            "ray-sentinel prometheus view /jobs/1234",
        ),
    ),
}
"""The commands by title of their group, in the order in which they are shown. They stand here and
not in their modules, so that the list of them is there in a moment: the modules import all that
they need."""
COMMANDS = tuple(entry for entries in GROUPS.values() for entry in entries)


class OverviewParser(argparse.ArgumentParser):
    """Shows all commands in groups, each with an example."""

    def format_help(self) -> str:
        """The usage, the groups, and what holds for all commands."""
        parts = [self.format_usage(), f"{self.description}\n"]
        for title, entries in GROUPS.items():
            lines = "\n".join(map(_describe, entries))
            parts.append(f"{title}:\n{lines}\n")
        return "\n".join([*parts, FOOT])


def _describe(entry: CommandEntry) -> str:
    return f"  {entry.name:<12}{entry.help}\n  {'':<12}  $ {entry.example}"


def unknown(word: str) -> str:
    """The message for an unknown command."""
    import difflib  # 5 ms, for which nobody else should wait

    typed = word.lower()[:40]
    near = difflib.get_close_matches(typed, [entry.name for entry in COMMANDS], n=1)
    guess = OTHER_NAMES.get(typed) or next(iter(near), "")
    meant = f"did you mean {guess}? " if guess else ""
    return f"there is no command {word[:80]!r}: {meant}`ray-sentinel --help` lists all commands"
