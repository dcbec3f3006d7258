#!/bin/sh
# Creates an allocation's directory and writes its alloc.json, which describes a task of another supervisor to the agent. Each call
# writes a temporary file and renames it, so a reader never sees a partial file.
#   manifest.sh DIR TASK pending              DIR is <alloc_dir>/<uuid>; creates the directories
#   manifest.sh DIR TASK running PID          the task's first process
#   manifest.sh DIR TASK dead [STATUS]        its exit status; 0 is success. In ExecStopPost= systemd provides it
# OUTPOST_OWNER is the owner of the directories in which the task writes, if it is not the caller. OUTPOST_NAME, OUTPOST_JOB,
# OUTPOST_GROUP and OUTPOST_NAMESPACE set further fields. OUTPOST_MAX_FILES and OUTPOST_MAX_FILE_MB are shown as the limits of the logs.
set -eu
umask 022
LC_ALL=C
export LC_ALL

fail() {
  printf 'manifest.sh: %s\n' "$1" >&2
  exit 2
}

[ $# -ge 3 ] || fail 'usage: manifest.sh DIR TASK pending|running|dead [PID|STATUS]'
dir=$1 task=$2 state=$3 value=${4:-}
id=${dir##*/}

# The shell does not escape JSON strings, so characters that would need it are refused.
plain() {
  case $2 in
    *[!A-Za-z0-9\ ._:/@+=,\[\]-]*) fail "$1: only letters, digits, spaces and ._:/@+=,[]- are allowed" ;;
  esac
  [ ${#2} -le 200 ] || fail "$1 is too long"
}
number() {
  case $2 in '' | *[!0-9]* | 0?*) fail "$1 must be a whole number" ;; esac
  [ ${#2} -le 9 ] || fail "$1 is too large"
}

case $dir in /*) ;; *) fail 'DIR must be absolute' ;; esac
case $id in
  *[!0-9a-f-]*) fail 'DIR must end with a UUID in lower case' ;;
  ????????-????-????-????-????????????) ;;
  *) fail 'DIR must end with a UUID in lower case' ;;
esac
case $task in '' | alloc | .* | *[!A-Za-z0-9._-]*) fail 'TASK: only letters, digits and ._- are allowed, and not "alloc"' ;; esac
[ ${#task} -le 128 ] || fail 'TASK is too long'
name=${OUTPOST_NAME:-$task} job=${OUTPOST_JOB:-$task} group=${OUTPOST_GROUP:-$task} space=${OUTPOST_NAMESPACE:-default}
plain OUTPOST_NAME "$name" && plain OUTPOST_JOB "$job" && plain OUTPOST_GROUP "$group" && plain OUTPOST_NAMESPACE "$space"
files=${OUTPOST_MAX_FILES:-10} megabytes=${OUTPOST_MAX_FILE_MB:-10}
number OUTPOST_MAX_FILES "$files" && number OUTPOST_MAX_FILE_MB "$megabytes"

# The value of a key that an earlier call wrote.
earlier() {
  [ ! -f "$dir/alloc.json" ] || sed -n "s/.*\"$1\":\([^,{}]\{1,\}\).*/\1/p" "$dir/alloc.json"
}
now() { printf '"%s"' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"; }

created=$(earlier CreateTime)
[ -n "$created" ] || created=$(date +%s)000000000
started=$(earlier StartedAt) finished=null pids='' ticks='' failed=false
case $state in
  pending)
    status=pending started=null
    mkdir -p "$dir/alloc/logs" "$dir/alloc/data" "$dir/alloc/tmp" "$dir/$task/local"
    for own in secrets private; do [ -d "$dir/$task/$own" ] || mkdir -m 0700 "$dir/$task/$own"; done
    [ -z "${OUTPOST_OWNER:-}" ] || (cd "$dir" && chown -h "$OUTPOST_OWNER" -- alloc/logs alloc/data alloc/tmp "$task"/*)
    ;;
  running)
    number PID "$value"
    status=running started=$(now) pids=$value
    # The start time in clock ticks distinguishes it from a later process with the same ID. Field 22; the name before it may contain
    # any characters.
    if stat=$(cat "/proc/$value/stat" 2>/dev/null); then
      # shellcheck disable=SC2086
      set -- ${stat##*) }
      ticks=",\"PidStartTicks\":${20}"
    fi
    ;;
  dead)
    # systemd reports success for a process that ended by the signal that systemd sent.
    [ "${SERVICE_RESULT:-}" != success ] || value=${value:-0}
    value=${value:-${EXIT_STATUS:-}}
    case $value in [A-Z]*) value=1 ;; esac
    number STATUS "$value"
    status=complete finished=$(now)
    [ "$value" -eq 0 ] || status=failed failed=true
    ;;
  *) fail 'the state must be pending, running or dead' ;;
esac

temporary=$dir/.alloc.json.$$
trap 'rm -f "$temporary"' EXIT
cat >"$temporary" <<END
{"ID":"$id","Name":"$name","Namespace":"$space","JobID":"$job","TaskGroup":"$group","DesiredStatus":"run","ClientStatus":"$status","CreateTime":$created,"Tasks":{"$task":{"State":"$state","Failed":$failed,"StartedAt":${started:-null},"FinishedAt":$finished,"Pids":[$pids],"LogsDisabled":false,"MaxFiles":$files,"MaxFileSizeMB":$megabytes$ticks}}}
END
mv "$temporary" "$dir/alloc.json"
