#!/usr/bin/env bash
# Check the node, then train under supervision: a crash or a hang is restarted from the last checkpoint.
#   CKPT=/checkpoints/my-job NPROC=8 ./run.sh [arguments of train.py]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CKPT=${CKPT:-/tmp/supervised_torchrun}
NPROC=${NPROC:-2}
PORT=${PORT:-29500}
mkdir -p "$CKPT"

ray-sentinel doctor --local --allow-warnings --port "$PORT" \
  --checkpoint-dir "$CKPT" --need-gib "${NEED_GIB:-1}"

exec ray-sentinel run --job "${JOB:-supervised-torchrun}" --checkpoint-dir "$CKPT" \
  --retry-delay "${RETRY_DELAY:-10}" -- \
  torchrun --nproc-per-node "$NPROC" --master-port "$PORT" "$here/train.py" \
  --folder "$CKPT" --resume "{checkpoint}" "$@"
