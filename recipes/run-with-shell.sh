#!/bin/sh
# Runs a command as an allocation, with a shell as its supervisor: directory, alloc.json, rotated logs, exit status.
#   run-with-shell.sh [ALLOC_DIR/]UUID|- TASK COMMAND ARGS…       "-" generates a UUID
# ALLOC_DIR is $OUTPOST_DATA_DIR/alloc, or /var/lib/outpost/alloc.
# Prints the UUID, forwards SIGTERM, SIGINT and SIGHUP as SIGTERM, and exits with the command's exit status. `outpost alloc run` does the
# same and handles more failures: a killed supervisor, a full disk, output that is not text.
set -eu
recipes=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=logs.sh
. "$recipes/logs.sh"

[ $# -ge 3 ] || { echo 'usage: run-with-shell.sh [ALLOC_DIR/]UUID|- TASK COMMAND ARGS…' >&2 && exit 2; }
dir=$1 task=$2
shift 2
case $dir in */*) ;; *) dir=${OUTPOST_DATA_DIR:-/var/lib/outpost}/alloc/$dir ;; esac
case $dir in */-) dir=${dir%-}$(cat /proc/sys/kernel/random/uuid) ;; esac

"$recipes/manifest.sh" "$dir" "$task" pending
start_logs "$dir" "$task"
pid=''
trap 'interrupted=yes; [ -z "$pid" ] || kill -TERM "$pid" || :' TERM INT HUP
"$@" >"$out" 2>"$err" &
pid=$!
"$recipes/manifest.sh" "$dir" "$task" running "$pid"
printf '%s\n' "${dir##*/}"

# A signal interrupts `wait`, which then returns the number of the signal. After the status of the command, it returns 127.
status=''
while :; do
  interrupted='' code=0
  wait "$pid" || code=$?
  [ "$code" = 127 ] && [ -n "$status" ] || status=$code
  [ -n "$interrupted" ] || break
done
for log in $log_pids; do wait "$log" || :; done
rm -rf "$pipes"
"$recipes/manifest.sh" "$dir" "$task" dead "$status"
exit "$status"
