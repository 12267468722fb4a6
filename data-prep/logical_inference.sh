#!/usr/bin/env bash
exec bash "$(dirname -- "$0")/_common.sh" "${0##*/}" "$@"
