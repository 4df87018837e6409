#!/usr/bin/env bash
# The test suite and the quick audit with the oldest and the newest jax that pyproject.toml allows,
# on each Python that is here: scripts/supported.sh [PYTHON ...]
#
# Ends with a line for each pair; exit code 1 if one of them failed, 2 if no Python was usable. The environments stay in
# .venv-supported/, so that a second run installs little.
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- python3.11 python3.12 python3.13
oldest="$(sed -nE 's/^ *"jax>=([0-9.]+),.*/\1/p' pyproject.toml)"
outcomes=()
status=2 # nothing was run

outcome() { # COMMAND...: "passed" or "FAILED", whatever the command prints in between
    if "$@" >&2; then echo passed; else echo FAILED; fi
}

found() { # NAME: an interpreter of that name that runs, among them pyenv's, whose shims need a choice
    local python
    for python in "$(command -v "$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${1#python}".*/bin/"$1"; do
        if "$python" -c "" 2>/dev/null; then echo "$python" && return; fi
    done
    echo "$1"
}

for named in "$@"; do
    python="$(found "$named")"
    if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
        outcomes+=("$named: not here, or not from 3.11 to 3.13; nothing was run")
        continue
    fi
    tried=""
    for jax in "==$oldest" ""; do
        environment=".venv-supported/$(basename "$named")-${jax:-newest}"
        bin="$environment/bin"
        if ! { "$python" -m venv "$environment" \
            && "$bin/python" -m pip install --quiet --upgrade --editable '.[dev,tpu]' "jax$jax" "jaxlib$jax"; }; then
            outcomes+=("$named, jax ${jax:-newest}: FAILED to install")
            status=1
            continue
        fi
        version="$("$bin/python" -c 'import importlib.metadata as m; print(m.version("jax"))')"
        [ "$version" != "$tried" ] || continue # the newest jax for this Python is the oldest too
        tried="$version"
        suite="$(outcome "$bin/python" -m pytest -q -n auto)"
        audit="$(outcome "$bin/python" lab/run.py task=audit)"
        outcomes+=("$named, jax $version: suite $suite, quick audit $audit")
        [ "$status" != 2 ] || status=0
        case "$suite $audit" in *FAILED*) status=1 ;; esac
    done
done
printf '%s\n' "" "${outcomes[@]}"
exit "$status"
