"""Print the script with which a shell completes commands and options.

    source <(ray-sentinel completion bash)                                   in ~/.bashrc
    ray-sentinel completion zsh > ~/.zfunc/_ray-sentinel                     with ~/.zfunc in fpath
    ray-sentinel completion fish > ~/.config/fish/completions/ray-sentinel.fish

Exit codes: 0 success; 2 wrong usage; 3 the package that writes the script (shtab) is not installed.
"""

from __future__ import annotations

import argparse
import sys

from ray_sentinel.errors import MissingPartError

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("shell", choices=SHELLS, help="shell that the script is for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise MissingPartError(
            "completion needs shtab, which is not installed: pip install shtab"
        ) from None
    from ray_sentinel.cli.main import build_parser

    sys.stdout.write(shtab.complete(build_parser(), args.shell) + "\n")
    return 0
