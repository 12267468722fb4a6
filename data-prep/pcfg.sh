#!/usr/bin/env bash
script="$(readlink -f -- "$0")" # whose name and folder count, not those of a link to it
exec bash "${script%/*}/_common.sh" "${script##*/}" "$@"
