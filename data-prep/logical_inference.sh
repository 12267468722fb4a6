#!/usr/bin/env bash
script="$(readlink -f -- "$0")"
exec bash "${script%/*}/_common.sh" "${script##*/}" "$@"
