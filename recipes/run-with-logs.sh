#!/bin/sh
# Becomes COMMAND, with both outputs going into the rotated logs of an allocation whose directory is there already. For a
# supervisor that knows the process, and writes alloc.json, itself: see outpost-task@.service.
#   run-with-logs.sh DIR TASK COMMAND ARGS…
set -eu
recipes=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=logs.sh
. "$recipes/logs.sh"
[ $# -ge 3 ] || { echo 'usage: run-with-logs.sh DIR TASK COMMAND ARGS…' >&2 && exit 2; }
dir=$1 task=$2
shift 2
start_logs "$dir" "$task"
exec >"$out" 2>"$err"
# Open on both sides by now: the names are not needed any more.
rm -rf "$pipes"
exec "$@"
