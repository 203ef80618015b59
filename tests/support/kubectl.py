"""A stand-in for kubectl: what it is to run in a pod, it runs here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

SCRIPT = """#!/bin/sh
# kubectl exec [-i] -n NAMESPACE POD -- COMMAND...
echo "$*" | head -c 200 | head -n 1 >> "{calls}"
[ "$1" = exec ] && shift
input=/dev/null
[ "$1" = -i ] && shift && input=/dev/stdin
if [ "$1" != -n ] || [ "$4" != -- ]; then echo "kubectl: what is $*?" >&2; exit 1; fi
[ "$3" = gone ] && echo 'Error from server (NotFound): pods "gone" not found' >&2 && exit 1
shift 4
[ -x "{pod}/$1" ] && program="{pod}/$1" && shift && set -- "$program" "$@"
exec "$@" < "$input"
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put it on PATH; the folder whose programs stand for those of the pod."""
    programs, pod = folder / "kubectl_bin", folder / "pod_bin"
    programs.mkdir()
    pod.mkdir()
    kubectl = programs / "kubectl"
    kubectl.write_text(SCRIPT.format(calls=folder / "calls", pod=pod))
    kubectl.chmod(0o755)
    # The pod's Python is the one with Ray.
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    return pod
