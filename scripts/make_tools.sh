#!/usr/bin/env bash
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# Builds .venv-tools: lint and documentation, which want a newer Python than the project itself.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Candidates are run, not just found: a pyenv shim exists for versions that are not selected, and
# Debian's python3 comes without ensurepip. A virtual environment must not become a base, and
# pre-releases often lack wheels.
shopt -s nullglob
mapfile -t candidates < <(type -ap python3 python3.{9..30})
candidates+=("${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.*/bin/python)
probe='
import sys, venv, ensurepip
v = sys.version_info
if v >= (3, 9) and v.releaselevel == "final" and sys.prefix == sys.base_prefix:
    print("%d.%d.%d %s" % (v[0], v[1], v[2], sys.executable))'
newest=$(for candidate in "${candidates[@]}"; do
    "$candidate" -c "$probe" 2>/dev/null || true
done | sort -V | tail -n 1)
if [ -z "$newest" ]; then
    echo "No Python 3.9 or newer with venv was found: install one, for example with 'apt-get install python3-venv' or 'pyenv install 3.12'." >&2
    exit 1
fi

echo "tools: .venv-tools from Python ${newest%% *}"
"${newest#* }" -m venv --clear .venv-tools
.venv-tools/bin/pip install -qq -r requirements/tools.txt
