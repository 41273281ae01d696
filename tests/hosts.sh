#!/usr/bin/env bash
# The contract with rsl_rl on every version we support, each in an environment of its own. The light core only:
# no simulator, so that this also shows what `pip install podpo` brings.
set -euo pipefail
cd "$(dirname "$0")/.."
for version in 5.0.1 5.4.2 5.5.1; do
    echo "== rsl-rl-lib $version"
    uv run --isolated --no-group sim --with "rsl-rl-lib==$version" \
        python -c "import importlib.metadata as m; assert m.version('rsl-rl-lib') == '$version', m.version('rsl-rl-lib')"
    uv run --isolated --no-group sim --with "rsl-rl-lib==$version" \
        pytest -q tests/test_runner.py tests/test_ppo_config.py tests/test_actor.py
done
