# shellcheck shell=sh
# To be sourced: both outputs of a task into its rotated logs.
#   start_logs DIR TASK     afterwards $out and $err are to be written to, once each, and log_pids is to be waited for
# recipes must be the directory of this file.
start_logs() {
  pipes=$(mktemp -d)
  out=$pipes/out err=$pipes/err
  mkfifo "$out" "$err"
  # shellcheck disable=SC2154
  "$recipes/rotate.sh" "$1/alloc/logs" "$2" stdout "${OUTPOST_MAX_FILES:-10}" "${OUTPOST_MAX_FILE_MB:-10}" <"$out" &
  log_pids=$!
  "$recipes/rotate.sh" "$1/alloc/logs" "$2" stderr "${OUTPOST_MAX_FILES:-10}" "${OUTPOST_MAX_FILE_MB:-10}" <"$err" &
  log_pids="$log_pids $!"
}
