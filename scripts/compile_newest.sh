#!/usr/bin/env bash
# Compile the published cases with the newest jax and libtpu that an interpreter can have, and keep
# what came of it: scripts/compile_newest.sh [PYTHON] [OUT]
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3.12}"
out="${2:-evidence/tpu-v5e-compiled/newest}"
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
    echo "there is no usable $python here (3.11 to 3.13): nothing was compiled; give another, as in" >&2
    echo "  make compile-newest PYTHON=python3.13" >&2
    exit 2
fi
environment=.venv-newest
[ -d "$environment" ] || "$python" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --upgrade --editable . 'jax[tpu]'
runs="$(mktemp -d)"
trap 'rm -rf "$runs"' EXIT
status=0
"$environment/bin/python" lab/run.py -m hydra.sweep.dir="$runs" task=compile target=v5e \
    kernel=pallas-8row,pallas,xla scope=softmax,attention seq=128,256,512,1024,2048 || status=$?
mkdir -p "$out"
"$environment/bin/python" -m lab.report.validate "$runs" "$out"
cp "$runs/report/cells.csv" "$out/cells.csv"
echo "outcome: exit code $status of the sweep; tables in $out/validation.md"
exit "$status"
