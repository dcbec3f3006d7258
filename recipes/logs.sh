# shellcheck shell=sh
# Sourced by the recipes: writes stdout and stderr of a task to its rotated logs.
#   start_logs DIR TASK     sets $out and $err, which the caller opens once each, and $log_pids, for which it waits
# The variable recipes must be the directory of this file.
start_logs() {
  pipes=$(mktemp -d)
  out=$pipes/out err=$pipes/err
  mkfifo "$out" "$err"
  write_log stdout "$1" "$2" <"$out" &
  log_pids=$!
  write_log stderr "$1" "$2" <"$err" &
  log_pids="$log_pids $!"
}

# Runs a program as OUTPOST_OWNER, the owner of the log directory, because a log writer with more permissions refuses to write there. The
# task may run as that user and can read the environment of the program. It gets only PATH, because the environment may contain a token.
as_owner() {
  user=${OUTPOST_OWNER:-}
  user=${user%%:*}
  if [ -z "$user" ] || [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
  uid=$(id -u "$user") gid=$(id -g "$user")
  command -v setpriv >/dev/null || { echo 'logs.sh: OUTPOST_OWNER needs setpriv (util-linux)' >&2 && exit 1; }
  exec env -i PATH="$PATH" setpriv --reuid="$uid" --regid="$gid" --init-groups "$@"
}

# The program opens DIR and its logs without following links, so a task that may write in DIR cannot redirect it.
write_log() {
  # A signal that ends the task must not end its log before the last line. The writer exits at the end of its input.
  trap '' TERM INT HUP
  # shellcheck disable=SC2154
  as_owner "$recipes/../bin/outpost" alloc write-log -task "$3" -type "$1" \
    -max-files "${OUTPOST_MAX_FILES:-10}" -max-file-size "${OUTPOST_MAX_FILE_MB:-10}" "$2"
}
