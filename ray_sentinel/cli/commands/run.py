"""Run a training command, watch it, and restart it from its latest good checkpoint.

    ray-sentinel run --checkpoint-dir /ckpt/job -- torchrun --nproc-per-node 8 train.py \\
        --resume {checkpoint}

{checkpoint}, {step}, {attempt} and {bad_nodes} in CMD are replaced; CMD also has them in its
environment as RAY_SENTINEL_CHECKPOINT, RAY_SENTINEL_STEP, RAY_SENTINEL_ATTEMPT and
RAY_SENTINEL_BAD_NODES.

Exit codes: 0 CMD succeeded; 1 it failed and is not restarted any more; 2 wrong usage, no such
program, or another supervisor runs this job already; 128 + N stopped by signal N.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.errors import UsageError
from ray_sentinel.supervise.attempt.terminal import Terminal

if TYPE_CHECKING:  # 30 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.supervise.actions import RunResult

POLICY = (
    "max_retries",
    "retry_delay",
    "max_delay",
    "always_restart",
    "stagnation_threshold",
    "startup_threshold",
    "grace",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.usage = "ray-sentinel run [options] -- CMD ..."
    what = parser.add_argument_group("what to run")
    what.add_argument(
        "--job",
        default="",
        metavar="NAME",
        help="name of the job (default: as configured, or else the program's name)",
    )
    what.add_argument(
        "--ray-job",
        default="",
        metavar="ID",
        help="follow this job of `ray job submit` instead of running CMD",
    )
    what.add_argument(
        "--ray-address", default="", metavar="URL", help="with --ray-job: URL of the Ray dashboard"
    )
    what.add_argument(
        "--checkpoint-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="folder of the job's checkpoints (repeatable for several tiers, the fastest first)",
    )
    again = parser.add_argument_group("restarting")
    again.add_argument(
        "--max-retries",
        type=int,
        default=10,
        metavar="N",
        help="restarts without progress before the job is given up (default: %(default)d)",
    )
    again.add_argument(
        "--retry-delay",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="seconds before the first restart; doubled with each further one without progress "
        "(default: %(default)g)",
    )
    again.add_argument(
        "--max-delay",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="longest delay before a restart, in seconds (default: %(default)g)",
    )
    again.add_argument(
        "--always-restart",
        action="store_true",
        help="restart even after failures that a restart cannot cure",
    )
    again.add_argument(
        "--drain-bad-nodes",
        action="store_true",
        help="drain bad nodes in the Ray cluster of RAY_ADDRESS; this cannot be undone",
    )
    hang = parser.add_argument_group("hangs")
    hang.add_argument(
        "--stagnation-threshold",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="seconds without a step and without output after which an attempt is ended; 0 = never "
        "(default: %(default)g)",
    )
    hang.add_argument(
        "--startup-threshold",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="seconds without a first step after which an attempt is ended (default: %(default)g)",
    )
    hang.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="seconds between SIGTERM and SIGKILL (default: %(default)g)",
    )
    hang.add_argument(
        "--page",
        default=None,
        metavar="LINK",
        help="link to the coordinator's page, '' for none (default: the page on this machine)",
    )
    tell = parser.add_argument_group("output")
    tell.add_argument(
        "--max-output-mib",
        type=int,
        default=256,
        metavar="N",
        help="largest size of an output file in MiB; each attempt has two (default: %(default)d)",
    )
    tell.add_argument(
        "--quiet", action="store_true", help="write the command's output to the file only"
    )
    tell.add_argument(
        "--notify-webhook",
        default="",
        metavar="URL",
        help="address that notices are sent to, as JSON or in Slack's format",
    )
    tell.add_argument(
        "--notify-apprise",
        default="",
        metavar="URL",
        help="address of any service that Apprise supports, to send notices to",
    )
    tell.add_argument(
        "--notify-command",
        default="",
        metavar="CMD",
        help="command to run for each notice, with the notice as JSON on its stdin",
    )
    tell.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    parser.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- CMD", help="command to run")


def run(args: argparse.Namespace) -> int:
    """Supervise until it is over."""
    kinds = ("webhook", "apprise", "command")
    given = {kind: getattr(args, f"notify_{kind}") for kind in kinds}
    notify = {name: value for name, value in given.items() if value}
    policy = {name: getattr(args, name) for name in POLICY}
    out, err = _terminals()
    say = _line_printer(err)
    try:
        if args.ray_job:
            result, more = _follow_job(args, policy, notify, say)
        else:
            shown = None if args.quiet else err if args.json else out
            result, more = _supervise(args, policy, notify, shown, say), {}
        say(f"{'done' if result.success else 'ended'}: {result.reason}")
    finally:
        for one in (out, err):
            if one is not None:
                one.close()
    if args.json and sys.stdout is not None:
        print_json({**msgspec.structs.asdict(result), **more})
    if result.stopped_by:
        return 128 + result.stopped_by
    return 0 if result.success else 1


def _supervise(
    args: argparse.Namespace,
    policy: dict[str, Any],
    notify: dict[str, str],
    shown: Terminal | None,
    say: Callable[[str], None],
) -> RunResult:
    from ray_sentinel import config, supervised_run

    if args.max_output_mib < 1:
        raise UsageError(f"--max-output-mib must be at least 1, and is {args.max_output_mib}")
    command = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    return supervised_run.run(
        command,
        job=args.job,
        config=config.load(overrides={**({"job": args.job} if args.job else {}), "notify": notify}),
        checkpoint_dir=args.checkpoint_dir,
        page=args.page,
        terminal=shown,
        max_output=args.max_output_mib << 20,
        say=say,
        drain_bad_nodes=args.drain_bad_nodes,
        **policy,
    )


def _follow_job(
    args: argparse.Namespace,
    policy: dict[str, Any],
    notify: dict[str, str],
    say: Callable[[str], None],
) -> tuple[RunResult, dict[str, str]]:
    from ray_sentinel import config, job_submission

    if args.cmd:
        raise UsageError("give a command or --ray-job, one of them")
    if args.drain_bad_nodes:
        raise UsageError("--drain-bad-nodes is for a command; drain nodes of a --ray-job yourself")
    result, last = job_submission.supervise_job(
        args.ray_job,
        args.checkpoint_dir,
        args.ray_address,
        args.page,
        say,
        config=config.load(overrides={"notify": notify}),
        **policy,
    )
    return result, {"job_id": last}


def _terminals() -> tuple[Terminal | None, Terminal | None]:
    """Standard output and error; one of them for both where both go to the same place."""
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            # Closed: or a file of ours would take its number, and be written to.
            os.open(os.devnull, os.O_RDWR)
    streams = (getattr(stream, "buffer", None) for stream in (sys.stdout, sys.stderr))
    out, err = (None if one is None else Terminal(one) for one in streams)
    return (err if err is not None and os.path.sameopenfile(1, 2) else out), err


def _line_printer(err: Terminal | None) -> Callable[[str], None]:
    def print_line(text: str) -> None:
        line = clean(text.replace("\n", "\\n"))
        if err is not None:
            shown = f"ray-sentinel {time.strftime('%H:%M:%S')}  {line}\n"
            err.write(shown.encode("utf-8", "backslashreplace"))

    return print_line
