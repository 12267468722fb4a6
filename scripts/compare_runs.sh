#!/usr/bin/env bash
# Shows:    what several runs reached, seed by seed, with mean and standard deviation, beside the paper.
# Machine:  any.
# Time:     seconds.
# Expect:   docs/results.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_environment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/compare_runs.sh [options] RUN...

A table of runs, folders that train_*.sh made and evaluate_*.sh has evaluated: a row for all runs that
differ in nothing but the seed, with the result of each on all sentences, in per cent, their mean and
the standard deviation of a sample.

  --subset NAME  on which set (default: test)
  --csv FILE     write the rows into a CSV file too
  --help         show this
HELP
}

subset=test csv="" runs=()
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --subset | --csv)
            [ $# -ge 2 ] || die "$1 needs a value; --help explains every option."
            printf -v "${1#--}" %s "$2"
            shift
            ;;
        -*) die "unknown option \`$1\`; --help lists the options there are." ;;
        *) runs+=("$1") ;;
    esac
    shift
done
[ -z "$csv" ] || [ -d "$(dirname -- "$csv")" ] || die "--csv $csv: there is no such folder; make it first."
[ ${#runs[@]} -gt 0 ] || die "no run is given: name folders that the training scripts made."

prepare_environment
"$python" "$repository/scripts/_compare_runs.py" "$subset" "$csv" "${runs[@]}"
