#!/bin/sh
# Compiles the program of a release once, so that its services start in half of the time: they may write nothing beside their
# code. Starts an agent with a server on loopback, in a temporary directory, and stops it when it has started. Without
# this step, or where it fails, each start of a service compiles the code again.
#
#     compile.sh PREFIX USER…      as root. PREFIX: directory of the release. USER: users of the services
set -eu
umask 022

prefix=$1
shift
cache=$prefix/node_modules/.cache/outpost-compile
# Seconds until a start on a slow machine is given up.
limit=60

directory=$(mktemp -d)
agent=''
cleanup() {
  [ -z "$agent" ] || kill "$agent" 2>/dev/null || :
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

cat >"$directory/agent.hcl" <<END
data_dir = "$directory/data"
bind_addr = "127.0.0.1"
log_level = "error"
ports {
  http    = 0
  cluster = 0
}
client { enabled = true }
server { enabled = true }
END
rm -rf "$cache"
# Not the environment of the caller: a notification of this agent would be taken for one of a service.
env -i PATH="$PATH" "$prefix/bin/outpost" validate "$directory/agent.hcl" >/dev/null
env -i PATH="$PATH" "$prefix/bin/outpost" agent -config "$directory/agent.hcl" >"$directory/out" 2>&1 &
agent=$!
elapsed=0
until grep -q 'agent started' "$directory/out"; do
  if ! kill -0 "$agent" 2>/dev/null || [ "$elapsed" -ge "$limit" ]; then
    cat "$directory/out" >&2
    exit 1
  fi
  sleep 1
  elapsed=$((elapsed + 1))
done
kill "$agent"
wait "$agent" || :
agent=''

# Node keeps what it compiled for each user apart. The files stay root's: a service cannot change the code that it loads.
for own in "$cache"/*-0; do
  [ -d "$own" ] || continue
  for user; do
    number=$(id -u "$user") || continue
    cp -R "$own" "${own%-0}-$number"
  done
done
chmod -R u=rwX,go=rX "$cache"
