#!/usr/bin/env bash
# Compile the public kernels over the blocks of their public v5e timings, and write the comparison:
#
#   scripts/public_kernels.sh KERNELS [OUT]     # OUT: evidence/tpu-v5e-compiled
#
# KERNELS keeps the records and schedules, for scripts/fit_copies.py. 45 cells.
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=${1:?usage: scripts/public_kernels.sh KERNELS [OUT]}
out=${2:-evidence/tpu-v5e-compiled}
python=${PYTHON:-python}

sweep() { # function, size, arguments
    local options
    options=$("$python" - "$1" "$2" <<'PY'
import json, sys

points = json.load(open("lab/report/measured_v5e.json"))["points"]
chosen = [p["options"] for p in points if [p["function"], str(p["size"])] == sys.argv[1:]]
print(",".join("{" + ",".join(f"{k}:{v}" for k, v in o.items()) + "}" for o in chosen))
PY
    )
    "$python" lab/run.py -m hydra.sweep.dir="$kernels/$1-$2" task=compile target=v5e \
        candidate=custom candidate.contract=function candidate.function="$1" \
        candidate.path=evidence/tpu-v5e-compiled/public_kernels.py compile.keep_dumps=true \
        candidate.arguments="$3" candidate.options="$options"
}

sweep scale 8192 '{x:[bfloat16,8192,8192]}'
sweep matmul 8192 '{a:[bfloat16,8192,8192],b:[bfloat16,8192,8192]}'
sweep matmul 16384 '{a:[bfloat16,16384,16384],b:[bfloat16,16384,16384]}'
"$python" -m lab.report.kernel_timings "$kernels" "$out"
