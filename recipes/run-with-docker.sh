#!/bin/sh
# Runs a container as an allocation: directory, alloc.json, rotated logs and `docker run`. ENGINE=podman works, too.
#   run-with-docker.sh [ALLOC_DIR/]UUID|- TASK [docker run options] IMAGE [COMMAND ARGS…]
# Prints the UUID, stops the container on SIGTERM, SIGINT and SIGHUP, and exits with the container's exit status. The allocation's
# directories are below /alloc and /local in the container; the logs are read-only.
set -eu
recipes=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=logs.sh
. "$recipes/logs.sh"
engine=${ENGINE:-docker}

[ $# -ge 3 ] || { echo 'usage: run-with-docker.sh [ALLOC_DIR/]UUID|- TASK [OPTIONS] IMAGE [COMMAND…]' >&2 && exit 2; }
dir=$1 task=$2
shift 2
case $dir in */*) ;; *) dir=${OUTPOST_DATA_DIR:-/var/lib/outpost}/alloc/$dir ;; esac
case $dir in */-) dir=${dir%-}$(cat /proc/sys/kernel/random/uuid) ;; esac
id=${dir##*/}
container=outpost-$id

"$recipes/manifest.sh" "$dir" "$task" pending
trap '"$engine" stop "$container" >/dev/null || :' TERM INT HUP
# Not --rm: its output and exit status are read afterwards.
if ! "$engine" run --detach --name "$container" --label "outpost.alloc=$id" \
  --volume "$dir/alloc/data:/alloc/data" --volume "$dir/alloc/tmp:/alloc/tmp" --volume "$dir/alloc/logs:/alloc/logs:ro" \
  --volume "$dir/$task/local:/local" "$@" >/dev/null; then
  "$recipes/manifest.sh" "$dir" "$task" dead 125
  exit 125
fi
start_logs "$dir" "$task"
# Starts at the first line, also of an ended container, and ends with the container.
"$engine" logs --follow "$container" >"$out" 2>"$err" &
follower=$!
# The process ID on this host; 0 if the container has ended.
pid=$("$engine" inspect --format '{{.State.Pid}}' "$container")
[ "$pid" = 0 ] || "$recipes/manifest.sh" "$dir" "$task" running "$pid"
printf '%s\n' "$id"

# A signal interrupts `wait` before the log has ended.
while :; do
  wait "$follower" || :
  kill -0 "$follower" 2>/dev/null || break
done
for log in $log_pids; do wait "$log" || :; done
rm -rf "$pipes"
status=$("$engine" wait "$container")
"$recipes/manifest.sh" "$dir" "$task" dead "$status"
"$engine" rm "$container" >/dev/null
exit "$status"
