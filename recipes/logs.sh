# shellcheck shell=sh
# To be sourced: both outputs of a task into its rotated logs.
#   start_logs DIR TASK     afterwards $out and $err are to be written to, once each, and log_pids is to be waited for
# recipes must be the directory of this file.
start_logs() {
  pipes=$(mktemp -d)
  out=$pipes/out err=$pipes/err
  mkfifo "$out" "$err"
  write_log stdout "$1" "$2" <"$out" &
  log_pids=$!
  write_log stderr "$1" "$2" <"$err" &
  log_pids="$log_pids $!"
}

# Runs a program as OUTPOST_OWNER, who owns the directory of the logs: a writer with more rights refuses to write there. The task
# may run as that user, who can read the environment of the program: of the caller's, which may hold a token, it gets PATH only.
as_owner() {
  user=${OUTPOST_OWNER:-}
  user=${user%%:*}
  if [ -z "$user" ] || [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
  uid=$(id -u "$user") gid=$(id -g "$user")
  command -v setpriv >/dev/null || { echo 'logs.sh: OUTPOST_OWNER needs setpriv (util-linux)' >&2 && exit 1; }
  exec env -i PATH="$PATH" setpriv --reuid="$uid" --regid="$gid" --init-groups "$@"
}

# The program opens DIR and its logs without following a link, so a task that may write in DIR misleads no writer.
write_log() {
  # What ends the task must not end its log before the last line is in: the end of the input is the end.
  trap '' TERM INT HUP
  # shellcheck disable=SC2154
  as_owner "$recipes/../bin/outpost" alloc write-log -task "$3" -type "$1" \
    -max-files "${OUTPOST_MAX_FILES:-10}" -max-file-size "${OUTPOST_MAX_FILE_MB:-10}" "$2"
}
