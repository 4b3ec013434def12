#!/usr/bin/env bash
# Runs a part of the tests on the newest Python that is here, if the suite runs on another one: the unit tests, the
# recordings, 20 seeds of the simulation and an embedded round trip. Its environment is .venv-newest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

places() { # places VERSION: where such a Python may be. A name in PATH may be pyenv's, of a version that is not switched on
  printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3 "$(.venv/bin/uv python dir)/cpython-$1".*/bin/python3
  type -ap "python$1" || true
}

find_newest() {
  local version place
  for version in 3.13 3.12; do
    [ "$version" != "$own" ] || continue
    while read -r place; do
      if "$place" -c "import ssl, sys; sys.exit(not sys.version.startswith('$version.'))" 2>/dev/null; then
        echo "$place"
        return
      fi
    done < <(places "$version")
  done
}

python=$(find_newest)
if [ -z "$python" ]; then
  echo "no Python 3.13 or 3.12 beside the $own of the suite: nothing is tested on a newer one"
  exit
fi
wanted=$("$python" -c 'import sys; print(sys.version)')
echo "a part of the tests on Python ${wanted%% *}:"

venv=.venv-newest
if [ "$(cat $venv/.ready 2>/dev/null)" != "$wanted" ] || [ requirements.lock -nt $venv/.ready ] || [ pyproject.toml -nt $venv/.ready ]; then
  rm -rf $venv
  .venv/bin/uv venv --quiet --python "$python" $venv
  VIRTUAL_ENV=$venv .venv/bin/uv pip install --quiet --require-hashes --requirement requirements.lock
  VIRTUAL_ENV=$venv .venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
  echo "$wanted" >$venv/.ready
fi
$venv/bin/python -m pytest --numprocesses 2 --dist loadfile \
  tests/unit tests/replays 'tests/e2e/test_round_trip.py::test_grow_shrink_and_delete[embedded-Job]'
cd tests && PYTHONHASHSEED=0 ../$venv/bin/python -m simulation --count 20
