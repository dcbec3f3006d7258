#!/bin/sh
# Implements the parts of docker that recipes/run-with-docker.sh uses, for machines without docker. A container is a
# process of this host. Refuses arguments that docker would refuse. FAKE_DOCKER_STATE is the directory of its
# containers.
# shellcheck disable=SC2015
set -eu
state=${FAKE_DOCKER_STATE:?}
refuse() { printf 'played docker: %s\n' "$1" >&2 && exit 64; }
command=$1
shift
case $command in
  run)
    name='' volumes=0 detached=''
    while :; do
      case ${1:-} in
        --detach) detached=yes && shift ;;
        --name) name=$2 && shift 2 ;;
        --label) case $2 in outpost.alloc=????????-*) shift 2 ;; *) refuse "label $2" ;; esac ;;
        --volume)
          [ -d "${2%%:*}" ] || refuse "there is no ${2%%:*}"
          case $2 in */alloc:* | */alloc/logs:*[!o] | */alloc/logs:*[!r]o) refuse "the container could write its logs: $2" ;; esac
          volumes=$((volumes + 1)) && shift 2
          ;;
        -*) refuse "run $1" ;;
        *) break ;;
      esac
    done
    [ "${1:-}" = image ] || { echo "Unable to find image '${1:-}' locally" >&2 && exit 125; }
    shift
    [ "$detached$volumes" = yes4 ] || refuse 'not as the recipe should'
    mkdir "$state/$name"
    (
      status=0
      sh -c 'echo $$ >"$1/pid.new" && mv "$1/pid.new" "$1/pid" && shift && exec "$@"' sh "$state/$name" "$@" \
        >"$state/$name/out" 2>"$state/$name/err" || status=$?
      echo "$status" >"$state/$name/status.new" && mv "$state/$name/status.new" "$state/$name/status"
    ) </dev/null >/dev/null 2>&1 &
    while [ ! -e "$state/$name/pid" ]; do sleep 0.02; done
    echo 0123456789abcdef
    ;;
  logs)
    [ "$1" = --follow ] && [ -d "$state/$2" ] && [ $# -eq 2 ] || refuse "logs $*"
    pid=$(cat "$state/$2/pid")
    tail -n +1 -s 0.1 --pid="$pid" -f "$state/$2/err" >&2 &
    tail -n +1 -s 0.1 --pid="$pid" -f "$state/$2/out"
    wait
    ;;
  inspect)
    [ "$1" = --format ] && [ "$2" = '{{.State.Pid}}' ] && [ -d "$state/$3" ] && [ $# -eq 3 ] || refuse "inspect $*"
    if [ -e "$state/$3/status" ]; then echo 0; else cat "$state/$3/pid"; fi
    ;;
  wait)
    [ -d "$state/$1" ] && [ $# -eq 1 ] || refuse "wait $*"
    while [ ! -e "$state/$1/status" ]; do sleep 0.02; done
    cat "$state/$1/status"
    ;;
  stop) [ $# -eq 1 ] && kill -TERM "$(cat "$state/$1/pid")" ;;
  rm) [ -e "$state/$1/status" ] && rm -r "${state:?}/$1" ;;
  *) refuse "$command" ;;
esac
