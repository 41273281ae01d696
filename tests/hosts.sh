#!/usr/bin/env bash
# Other people's environments, each made anew: every rsl_rl we support, and the oldest versions that pyproject.toml
# admits. The light core only: no simulator, so that this also shows what `pip install podpo` brings.
set -euo pipefail
cd "$(dirname "$0")/.."
for version in 5.0.1 5.4.2 5.5.1; do
    echo "== rsl-rl-lib $version"
    uv run --isolated --no-group sim --with "rsl-rl-lib==$version" \
        python -c "import importlib.metadata as m; assert m.version('rsl-rl-lib') == '$version', m.version('rsl-rl-lib')"
    uv run --isolated --no-group sim --with "rsl-rl-lib==$version" \
        pytest -q tests/test_runner.py tests/test_ppo_config.py tests/test_warm_start.py tests/test_actor.py
done
echo "== the oldest of everything"
uv run --isolated --no-group sim --resolution lowest-direct \
    pytest -q -W ignore tests/test_runner.py tests/test_algorithm.py tests/test_drift.py tests/test_training.py tests/test_export.py
