"""Watch a real training job hang, and be told which rank did it.

Starts a Ray cluster of three nodes on this machine and a real torch.distributed job of six ranks,
makes one rank fail, and shows how ray_sentinel reports it. With `--job rl` it starts a job of Ray
actors (reinforcement learning) instead, one of whose rollouts stands still. Needs no GPU and no
root.

Exit codes: 0 the verdict is right; 1 it is wrong, or the demo failed; 2 wrong usage; 3 something
is missing, such as PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ray_sentinel.cli.output import print_json
from ray_sentinel.errors import MissingPartError, UsageError
from ray_sentinel.report.contract import incident_dict

if TYPE_CHECKING:  # 150 ms, which `ray-sentinel --help` need not wait for
    from ray_sentinel.demo.actor_plan import ActorTrialPlan
    from ray_sentinel.demo.plan import Attach, TrialPlan

RANKS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--job",
        default="ranks",
        choices=["ranks", "rl"],
        help="kind of job: a training of ranks, or reinforcement learning by actors (a driver, "
        "rollouts, a reward, trainers) (default: %(default)s)",
    )
    parser.add_argument(
        "--fault",
        default="",
        metavar="NAME",
        help="fault to cause, as in docs/faults.md: sleep, sigstop, gil, fifo, skip, two-kinds, "
        "outside, ... (default: drawn at random; with --job rl: sleep)",
    )
    layouts = ["data", "ddp", "tensor", "pipeline", "experts"]
    parser.add_argument(
        "--layout",
        default="",
        choices=layouts,
        help="how the ranks work together (default: drawn at random)",
    )
    parser.add_argument(
        "--rank", type=int, metavar="N", help="rank that gets stuck (default: drawn at random)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the random choices, to repeat a demo"
    )
    parser.add_argument(
        "--no-attach",
        action="store_true",
        help="use a training script without a line of ray_sentinel",
    )
    parser.add_argument(
        "--folder",
        default="",
        metavar="DIR",
        help="folder for logs and the report (default: a new temporary folder)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Run the demo of the chosen kind of job."""
    from rich.live import Live

    from ray_sentinel.cli.terminal import Console
    from ray_sentinel.demo import show, story

    if importlib.util.find_spec("torch") is None:
        raise MissingPartError("the demo trains with PyTorch: pip install 'ray-sentinel[demo]'")
    plan, folder, started = _drawn(args), _folder(args), time.time()
    if args.json:
        outcome = story.run(plan, folder, show=lambda status, note: None)
        print_json(
            {
                "right": outcome.right,
                "wrong": outcome.wrong,
                "drawn": plan,
                "attached": bool(plan.attach),
                "seconds_to_verdict": outcome.seconds,
                "incident": incident_dict(outcome.incident) if outcome.incident else None,
                "folder": str(folder),
                "seconds": round(time.time() - started, 1),
            }
        )
    else:
        console = Console()
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            outcome = story.run(
                plan, folder, show=lambda status, note: live.update(show.progress(status, note))
            )
        show.verdict(console, outcome)
    return 0 if outcome.right else 1


def _drawn(args: argparse.Namespace) -> TrialPlan | ActorTrialPlan:
    """The job that was asked for, or one drawn at random."""
    from ray_sentinel.demo.actor_plan import draw_shown
    from ray_sentinel.demo.plan import draw

    mode: Attach = "" if args.no_attach else "attach"
    if args.job == "rl":
        if args.layout or args.rank is not None:
            raise UsageError("--layout and --rank are for trainings of ranks, not for --job rl")
        return draw_shown(args.fault, args.seed, mode)
    plan = draw(args.fault, args.rank, args.seed, layout=args.layout, attach=mode, world=RANKS)
    # A script of the user's, in processes of its own: Ray would talk of every actor that ends.
    return msgspec.structs.replace(plan, actors=False)


def _folder(args: argparse.Namespace) -> Path:
    folder = Path(args.folder) if args.folder else Path(tempfile.mkdtemp(prefix="sentinel-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
