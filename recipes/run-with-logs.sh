#!/bin/sh
# Executes COMMAND in place of this script, with stdout and stderr in the rotated logs of an existing allocation directory. For a
# supervisor that tracks the process and writes alloc.json: see outpost-task@.service.
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
# Both sides have opened the pipes, so their names can be removed.
rm -rf "$pipes"
exec "$@"
