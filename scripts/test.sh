#!/usr/bin/env bash
# The checks of this repository: ruff, mypy, then the tests; 8 to 17 minutes on 2 CPU cores.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=_environment.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_environment.sh"

for argument in "$@"; do
    if [ "$argument" = --help ] || [ "$argument" = -h ]; then
        cat <<'HELP'
usage: bash scripts/test.sh [--slow] [pytest arguments]

Make .venv if there is none (the first time takes minutes; PYTHON=INTERPRETER before the command
chooses its Python), then run ruff, mypy and the tests.

  --slow    run the long tests too
  --help    show this

Every other argument goes to pytest, paths from the root of the repository, for example:
  bash scripts/test.sh tests/unit              one folder
  bash scripts/test.sh -k halting -x           by name, stop at the first failure
  bash scripts/test.sh -n 0 --pdb              in one process, with a debugger
HELP
        exit 0
    fi
done

prepare_environment test
cd "$repository"
say "ruff"
ruff check --quiet .
ruff format --quiet --check . || die "some files are not formatted: run \`ruff format .\`."
say "mypy"
mypy --no-error-summary
say "pytest"

# One process per core, four at most: each holds its own copy of PyTorch. A debugger and
# uncaptured output need a single process.
processes="$("$python" -c 'import os; print(min(4, os.cpu_count() or 1))')"
case " $* " in
    *" -n"* | *" --numprocesses"* | *" -p "* | *" --pdb "* | *" -s "* | *" --capture=no "*)
        spread=()
        ;;
    *) spread=(-n "$processes" --dist worksteal) ;;
esac
exec "$python" -m pytest --durations 15 ${spread[@]+"${spread[@]}"} "$@"
