#!/bin/sh
# Installs outpost as a systemd service from this checkout or release, upgrades an installed one, rolls it back, or removes it. Each
# step is printed before it is executed; with -n it is only printed. The script is idempotent, and never changes the configuration or
# the data. It checks as much as possible before the first change.
#
# An upgrade keeps the previous version in PREFIX.previous. A version that does not start, or does not run for a minute without a
# restart, is replaced with the previous one. The two roles of a host share the program and restart together: the server
# first, then the agent.
set -eu
umask 022

usage() {
  cat <<'END'
Usage: systemd/install.sh [options]              install or upgrade, then start
       systemd/install.sh --rollback [options]   return to the version before the last upgrade
       systemd/install.sh --uninstall [options]  stop and remove unit and program; configuration and data stay
  --role agent|server  role of this host: agent or server                            (agent)
  --no-secrets         with --role server: no secrets core, for all servers of a region except the first
  -n, --dry-run        print the steps without running them
  --link               link the program to this checkout instead of copying it
  --no-start           install without enabling or starting the service
  --confirm SECONDS    after an upgrade, how long the new version must run without a restart   (60)
  --purge              with --uninstall: also remove configuration, data (task logs included) and the user, if this script created it
  --prefix DIR         directory of the program, for both roles  (/opt/outpost)
  --config-dir DIR     directory of the configuration            (/etc/outpost, /etc/outpost-server)
  --data-dir DIR       data directory                            (/var/lib/outpost, /var/lib/outpost-server)
  --unit-dir DIR       directory of the unit                     (/etc/systemd/system)
  --user NAME          user of the service; created if missing   (outpost, outpost-server)
END
}

fail() {
  printf 'install.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

no_secrets='' dry='' rollback='' confirm=60 uninstall='' purge='' link='' start=yes
role=agent prefix=/opt/outpost config_dir='' data_dir='' unit_dir=/etc/systemd/system user=''
while [ $# -gt 0 ]; do
  case $1 in
    -n | --dry-run) dry=yes ;;
    --no-secrets) no_secrets=yes ;;
    --uninstall) uninstall=yes ;;
    --rollback) rollback=yes ;;
    --purge) purge=yes ;;
    --link) link=yes ;;
    --no-start) start='' ;;
    -h | --help) usage && exit 0 ;;
    --role | --prefix | --config-dir | --data-dir | --unit-dir | --user | --confirm)
      [ $# -ge 2 ] || fail "$1 requires a value" 2
      case $1 in
        --role) role=$2 ;;
        --prefix) prefix=$2 ;;
        --config-dir) config_dir=$2 ;;
        --data-dir) data_dir=$2 ;;
        --unit-dir) unit_dir=$2 ;;
        --user) user=$2 ;;
        --confirm) confirm=$2 ;;
      esac
      shift
      ;;
    *) usage >&2 && fail "unknown option \"$1\"" 2 ;;
  esac
  shift
done
[ -z "$purge" ] || [ -n "$uninstall" ] || fail '--purge requires --uninstall' 2
[ -z "$rollback" ] || [ -z "$uninstall" ] || fail '--rollback and --uninstall are mutually exclusive' 2
case $confirm in '' | *[!0-9]* | ?????*) fail "--confirm $confirm: must be a number of seconds, at most 9999" 2 ;; esac
case $role in
  agent) service=outpost other=outpost-server ;;
  server) service=outpost-server other=outpost ;;
  *) fail "--role $role: must be agent or server" 2 ;;
esac
[ -z "$no_secrets" ] || [ "$role" = server ] || fail '--no-secrets requires --role server' 2
config_dir=${config_dir:-/etc/$service} data_dir=${data_dir:-/var/lib/$service} user=${user:-$service}
# These values are written into the unit, and --uninstall removes some of the paths: characters with another meaning are refused.
for path in "$prefix" "$config_dir" "$data_dir" "$unit_dir"; do
  case $path in
    *[!A-Za-z0-9/._-]* | */. | */.. | */./* | */../* | *//* | */) fail "$path: must be an absolute path without special characters and without . and .. components" 2 ;;
    /*/*) ;;
    *) fail "$path: must be an absolute path with at least two components" 2 ;;
  esac
done
case $user in '' | [!a-z_]* | *[!a-z0-9_-]*) fail "$user is not a valid user name" 2 ;; esac

# The server first, because agents use it.
services='outpost-server outpost'

# Marks a user that this script created, because --purge deletes no other.
user_comment='outpost service, created by install.sh'

checkout=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd -P)
unit=$unit_dir/$service.service

if [ -z "$dry" ]; then
  [ "$(id -u)" -eq 0 ] || fail 'run this script as root (sudo), or with -n to print the steps only'
  if [ -n "$start" ] && [ ! -d /run/systemd/system ]; then
    fail "systemd is not running on this host. Use --no-start to install the files only, or run outpost with another supervisor: $checkout/bin/outpost agent -config $config_dir"
  fi
fi

say() { printf '%s\n' "$*"; }
# Prints a command and runs it.
run() {
  say "  $*"
  [ -n "$dry" ] || "$@"
}
systemd() { [ -z "$start" ] || run systemctl "$@"; }

remove() {
  say "==> stop the service"
  if [ -n "$start" ] && [ -e "$unit" ]; then run systemctl disable --now "$service.service"; fi
  say "==> remove unit and program"
  run rm -f "$unit" "$unit.previous"
  # A checkout is not removed.
  if [ "$prefix" = "$checkout" ]; then
    say "  ($prefix is this checkout and is not removed)"
  elif [ -e "$unit_dir/$other.service" ]; then
    say "  ($prefix is not removed: $other.service uses it)"
  elif [ -L "$prefix" ] || [ -e "$prefix/bin/outpost" ]; then
    run rm -rf "$prefix" "$prefix.new" "$prefix.previous" "$prefix.undone"
  fi
  systemd daemon-reload
  if [ -z "$purge" ]; then
    say "==> configuration ($config_dir), data ($data_dir) and user ($user) are kept; --purge removes them"
    return
  fi
  say "==> remove configuration, data and user"
  # Mounts of tasks below these directories are not removed.
  run rm -rf --one-file-system "$config_dir" "$data_dir"
  id "$user" >/dev/null 2>&1 || return 0
  if [ "$(getent passwd "$user" | cut -d : -f 5)" = "$user_comment" ]; then
    run userdel "$user"
  else
    say "  (the user $user is not removed: this script did not create it)"
  fi
}

# Before the first change: conditions that would fail a later step.
check() {
  say "==> check"
  [ -d "$checkout/node_modules" ] || fail "the dependencies are missing, run: (cd $checkout && npm ci)"
  "$checkout/bin/outpost" version >/dev/null || fail "the program of this checkout does not run, see the error above; nothing was changed"
  if [ -n "$no_secrets" ] && has_config && ! without_secrets; then
    fail "--no-secrets: $config_dir already has a configuration: set server { secrets = false } there. Nothing was changed"
  fi
  if has_config; then
    # Validated by the new program, not the running one.
    "$checkout/bin/outpost" validate "$config_dir" || fail "fix the configuration in $config_dir first; nothing was changed"
  elif [ -e "$config_dir/cluster.hcl" ]; then
    # Validated together with the file that will be written.
    draft=$(mktemp -d)
    hash=$(printf draft | sha256sum | cut -d ' ' -f 1)
    config_text >"$draft/agent.hcl"
    good=yes
    "$checkout/bin/outpost" validate "$draft/agent.hcl" "$config_dir/cluster.hcl" || good=''
    rm -rf "$draft"
    [ -n "$good" ] || fail "fix $config_dir/cluster.hcl first; nothing was changed"
  fi
  if [ -n "$link" ] && ! others_pass "$checkout"; then
    fail "the user $user cannot run $checkout/bin/outpost: a directory above it does not permit access: change its mode, or omit --link. Nothing was changed"
  fi
  others_pass "$(dirname -- "$prefix")" || fail "the user $user cannot reach $prefix: a directory above it does not permit access: change its mode. Nothing was changed"
  if [ -e "$data_dir" ] && id "$user" >/dev/null 2>&1; then
    owner=$(stat -c %U -- "$data_dir")
    [ "$owner" = "$user" ] || fail "$data_dir belongs to $owner: run chown -R $user: $data_dir, or use another --data-dir. Nothing was changed"
  fi
  say "  checkout, configuration and directories are valid"
}

# Whether an unprivileged user can enter a directory and its parents. Missing directories are created with such a mode.
others_pass() {
  [ "$(id -u)" -eq 0 ] || return 0
  existing=$1
  while [ ! -e "$existing" ]; do existing=$(dirname -- "$existing"); done
  setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$existing"
}

# Files of "outpost cluster keys" are not a complete configuration.
has_config() {
  for file in "$config_dir"/*.hcl "$config_dir"/*.json; do
    [ ! -e "$file" ] || [ "$file" = "$config_dir/cluster.hcl" ] || return 0
  done
  return 1
}

# Whether the configuration disables the secrets core.
without_secrets() {
  grep -Eqs '^[^#]*secrets"?[[:space:]]*[=:][[:space:]]*false' "$config_dir"/*.hcl "$config_dir"/*.json
}

make_user() {
  id "$user" >/dev/null 2>&1 && return
  say "==> create the user $user"
  nologin=$(command -v nologin || echo /usr/sbin/nologin)
  run useradd --system --user-group --no-create-home --home-dir "$data_dir" --shell "$nologin" --comment "$user_comment" "$user"
}

# Staged beside the old program first, so that the running program never sees a partial copy. $staged is the new one.
stage_program() {
  say "==> install the program in $prefix"
  staged=$prefix.new
  if [ "$prefix" = "$checkout" ]; then
    say "  (this checkout is that directory)"
    staged=$prefix
    return
  fi
  run mkdir -p "$(dirname -- "$prefix")"
  run rm -rf "$staged"
  if [ -n "$link" ]; then
    run ln -s "$checkout" "$staged"
    return
  fi
  run mkdir "$staged"
  if can_bundle; then
    # The bundle and the packages that it loads, without sources and development packages.
    run "$node" "$checkout/scripts/stage-program.ts" "$staged"
  else
    copy_program
  fi
  run chown -R -h 0:0 "$staged"
  run chmod -R u+rwX,go+rX,go-w "$staged"
}

# The bundler is a development package: "npm ci --omit=dev" leaves it out.
can_bundle() {
  [ -e "$checkout/src/main.ts" ] && [ -e "$checkout/scripts/stage-program.ts" ] && [ -x "$checkout/node_modules/.bin/esbuild" ] || return 1
  for node in "$checkout"/node_modules/node-linux-*/bin/node; do
    "$node" --version >/dev/null 2>&1 && return 0
  done
  return 1
}

copy_program() {
  for part in bin src dist systemd deploy recipes docs man completion package.json package-lock.json agent.hcl.example README.md CHANGELOG.md LICENSE; do
    [ ! -e "$checkout/$part" ] || run cp -R "$checkout/$part" "$staged/"
  done
  # A link is followed; links inside the directory are kept.
  run cp -R -H "$checkout/node_modules" "$staged/node_modules"
}

# Marks a version that replaced another one and was not confirmed yet.
unconfirmed=.unconfirmed

# $replaced says which version a failed start returns to: "current" is the one that was installed until now, "previous" the one
# before it, because the current one was never confirmed.
swap_program() {
  replaced=''
  [ "$staged" != "$prefix" ] || return 0
  if is_installed; then
    say "==> this version is in $prefix"
    run rm -rf "$staged"
    return
  fi
  say "==> replace the program"
  if [ -e "$prefix" ] || [ -L "$prefix" ]; then
    # A linked checkout gets no marker.
    [ -n "$link" ] || run touch "$staged/$unconfirmed"
    if [ -e "$prefix/$unconfirmed" ] && [ -e "$prefix.previous" ]; then
      say "  (the installed version was not confirmed and is removed; $prefix.previous is kept)"
      replaced=previous
      run rm -rf "$prefix"
    else
      replaced=current
      run rm -rf "$prefix.previous"
      run mv "$prefix" "$prefix.previous"
      # The units of this version, for --rollback.
      for each in $services; do
        run rm -f "$unit_dir/$each.service.previous"
        [ ! -e "$unit_dir/$each.service" ] || run cp -p "$unit_dir/$each.service" "$unit_dir/$each.service.previous"
      done
    fi
  fi
  run mv "$staged" "$prefix"
}

# Whether the staged version is the installed one.
is_installed() {
  [ -z "$dry" ] && [ -z "$link" ] && [ -d "$prefix" ] && [ ! -L "$prefix" ] || return 1
  diff -rq --no-dereference --exclude=.cache --exclude="$unconfirmed" "$staged" "$prefix" >/dev/null 2>&1
}

# The first token, until the first start has succeeded. Only root can read it; the service does not.
token_file=$config_dir/first-token

write_config() {
  say "==> write the configuration to $config_dir"
  # The hashes of tokens are readable only by the service's user.
  run install -d -o 0 -g "$user" -m 0750 "$config_dir"
  if has_config; then
    say "  ($file exists, nothing is written)"
    return
  fi
  say "  write $config_dir/agent.hcl with a new token, which $token_file contains until the service has started"
  [ -z "$dry" ] || return 0
  # The token is in no command line, because printf is a shell builtin.
  token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  [ ${#token} -eq 64 ] || fail 'cannot generate a token: /dev/urandom returned no data'
  hash=$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)
  (umask 077 && printf '%s\n' "$token" >"$token_file")
  (umask 027 && config_text >"$config_dir/agent.hcl.new")
  chgrp "$user" "$config_dir/agent.hcl.new"
  mv "$config_dir/agent.hcl.new" "$config_dir/agent.hcl"
}

config_text() {
  cat <<END
# Minimal configuration for this role. All settings: $prefix/agent.hcl.example
data_dir = "$data_dir"

# Loopback only. Before it listens elsewhere, give it a certificate: see "TLS" in $prefix/docs/operating/configuration.md
bind_addr = "127.0.0.1"
END
  # Two services on one host need different ports.
  if [ -e "$unit_dir/$other.service" ]; then
    printf 'ports {\n  http    = 4648\n  cluster = 4649\n}\n'
  fi
  [ "$role" = server ] && printf '\nserver {\n  enabled = true\n' || printf '\nclient {\n  enabled = true\n'
  [ -z "$no_secrets" ] || printf '  # Another server of the region has the secrets core. Requests for secrets go there.\n  secrets = false\n'
  printf '}\n'
  cat <<END

acl {
  token "admin" {
    sha256 = "$hash"
    policy = <<-EOT
      node { policy = "write" }
      agent { policy = "write" }
      namespace "*" { policy = "write" }
    EOT
  }
}
END
}

# The key of a cluster member. The unit of a server has no capabilities, so its user must be able to read the key.
open_key() {
  if [ "$role" != server ] || [ ! -e "$config_dir/cluster.nk" ]; then return 0; fi
  run chgrp "$user" "$config_dir/cluster.nk"
  run chmod 0640 "$config_dir/cluster.nk"
}

write_unit() {
  say "==> write the unit $unit"
  run mkdir -p "$unit_dir"
  say "  write $unit"
  [ -z "$dry" ] || return 0
  sed -e "s#/opt/outpost/#$prefix/#g" -e "s#/etc/$service\$#$config_dir#" -e "s#/var/lib/$service\$#$data_dir#" \
    -e "s#^\\(User\\|Group\\)=$service\$#\\1=$user#" -e "s#-o $service -g $service#-o $user -g $user#" \
    "$checkout/systemd/$service.service" >"$unit.new"
  chmod 0644 "$unit.new"
  [ ! -e "$unit" ] || cp -p "$unit" "$unit.old"
  mv "$unit.new" "$unit"
}

start_service() {
  [ -n "$start" ] || return 0
  say "==> start the service and wait until it is ready"
  systemd daemon-reload
  systemd enable "$service.service"
  systemd reset-failed "$service.service" 2>/dev/null || :
  restart_services || go_back "the service does not start"
  watch_services
}

# Restarts this role's service, or starts it if it does not run. For a new program, also restarts the other role's service if it runs.
# Returns when the services have reported that they are ready.
restart_services() {
  for each in $services; do
    if [ "$each" = "$service" ]; then
      systemd restart "$each.service" || return 1
    elif [ -n "$replaced" ] && is_active "$each"; then
      say "  ($each runs the same program)"
      systemd restart "$each.service" || return 1
    fi
  done
}

is_active() {
  [ -e "$unit_dir/$1.service" ] && systemctl is-active --quiet "$1.service"
}

# Processes of the running services: another number means a restart.
main_pids() {
  for each in $services; do
    if is_active "$each"; then systemctl show -P MainPID "$each.service"; else echo "$each is down"; fi
  done
}

# A new version is kept when its services have run for $confirm seconds without a restart.
watch_services() {
  [ -n "$replaced" ] || return 0
  say "==> watch the new version for $confirm s; if it fails, the previous version is restored"
  [ -z "$dry" ] || return 0
  before=$(main_pids)
  elapsed=0
  while [ "$elapsed" -lt "$confirm" ]; do
    sleep 1
    elapsed=$((elapsed + 1))
    [ "$(main_pids)" = "$before" ] || go_back "a service stopped or restarted within $confirm s"
  done
  run rm -f "$prefix/$unconfirmed"
  say "  ($prefix.previous has the previous version; --rollback returns to it)"
}

# Restores the previous program and unit, and restarts the services.
go_back() {
  reason="$1, see: journalctl -u $service -n 20"
  [ ! -e "$token_file" ] || reason="$reason
install.sh: the first token is in $token_file (readable by root only): fix the error and run this script again, which prints it"
  if [ -z "$replaced" ] && [ ! -e "$unit.old" ]; then fail "$reason"; fi
  say "==> $1: restore the previous program and unit"
  if [ -n "$replaced" ]; then
    run rm -rf "$prefix"
    run mv "$prefix.previous" "$prefix"
  fi
  if [ "$replaced" = previous ] && [ -e "$unit.previous" ]; then
    run mv "$unit.previous" "$unit"
  elif [ -e "$unit.old" ]; then
    run mv "$unit.old" "$unit"
  fi
  run rm -f "$unit.old"
  [ -z "$replaced" ] || run rm -f "$unit_dir/outpost.service.previous" "$unit_dir/outpost-server.service.previous"
  systemd daemon-reload
  reset_failed
  restart_services || fail "$reason (the previous installation does not start either)"
  fail "$reason. The previous installation was restored and is running"
}

reset_failed() {
  for each in $services; do
    [ ! -e "$unit_dir/$each.service" ] || systemd reset-failed "$each.service" 2>/dev/null || :
  done
}

# Restores the units with the suffix $1, and keeps the replaced ones with the suffix $2.
move_units() {
  for each in $services; do
    file=$unit_dir/$each.service
    [ -e "$file.$1" ] || continue
    run mv "$file" "$file.$2"
    run mv "$file.$1" "$file"
  done
}

# Returns to $prefix.previous. If that does not start, for example because the current version has migrated the data, the current
# version is restored.
roll_back() {
  say "==> check"
  if [ ! -e "$prefix.previous" ]; then fail "there is no previous version in $prefix.previous; nothing was changed"; fi
  for each in $services; do
    [ -e "$unit_dir/$each.service" ] || continue
    directory=$(sed -n 's/^ExecStart=.* -config //p' "$unit_dir/$each.service")
    run "$prefix.previous/bin/outpost" validate "$directory" ||
      fail "the previous version refuses the configuration in $directory; nothing was changed"
  done
  replaced=current
  say "==> put the previous program in place"
  run rm -rf "$prefix.undone"
  run mv "$prefix" "$prefix.undone"
  run mv "$prefix.previous" "$prefix"
  run rm -f "$prefix/$unconfirmed"
  move_units previous undone
  if [ -n "$start" ]; then
    say "==> restart"
    systemd daemon-reload
    reset_failed
    if ! restart_services; then
      say "==> the previous version does not start: restore the current one"
      run mv "$prefix" "$prefix.previous"
      run mv "$prefix.undone" "$prefix"
      move_units undone previous
      systemd daemon-reload
      reset_failed
      restart_services || fail "neither version starts, see: journalctl -u $service -n 20"
      fail "the previous version does not start, see: journalctl -u $service -n 40. The current version was restored and is running"
    fi
  fi
  run rm -rf "$prefix.undone" "$unit_dir/outpost.service.undone" "$unit_dir/outpost-server.service.undone"
  say "==> done: $("$prefix/bin/outpost" version)"
}

show() {
  [ -z "$dry" ] || return 0
  url=http://127.0.0.1:4646
  # The user of the service writes this file, and it may be a link, a pipe, or contain other commands.
  if [ -n "$start" ] && [ -f "$data_dir/http.addr" ] && [ ! -L "$data_dir/http.addr" ]; then
    address=$(head -c 256 "$data_dir/http.addr")
    case $address in
      *[!A-Za-z0-9.:/[\]-]*) ;;
      http://?* | https://?*) url=$address ;;
    esac
  fi
  say "==> done. Next steps:"
  say "  systemctl status $service"
  say "  journalctl -u $service -f"
  say "  ln -s $prefix/bin/outpost /usr/local/bin/     adds \"outpost\" to the PATH"
  [ "$role" = agent ] || show_secrets
  # Also the token of an earlier run whose start failed.
  [ -n "$start" ] && [ -r "$token_file" ] && token=$(cat "$token_file")
  if [ -z "${token:-}" ]; then
    say "  curl -H 'X-Nomad-Token: …' $url/v1/agent/self?pretty"
    return
  fi
  say "  curl -H 'X-Nomad-Token: $token' $url/v1/agent/self?pretty"
  say "==> the token (shown only once; the configuration contains its hash): $token"
  rm -f "$token_file"
}

show_secrets() {
  if without_secrets; then
    say "  (no secrets core here: this server forwards requests for secrets to the server that has it)"
    return
  fi
  say "  OUTPOST_ADDR=$url $prefix/bin/outpost operator init     generates the key shares and the root token"
  say "  (only on the first server of a region; on the others set server { secrets = false } in $config_dir instead)"
}

if [ -n "$uninstall" ]; then
  remove
  exit 0
fi
if [ -n "$rollback" ]; then
  roll_back
  exit 0
fi
check
make_user
write_config
open_key
stage_program
run "$staged/bin/outpost" validate "$config_dir" || fail "fix the configuration; only $config_dir and $staged were changed"
# systemd starts the program as that user, before capabilities are effective.
run setpriv --reuid "$user" --regid "$user" --clear-groups "$staged/bin/outpost" version ||
  fail "the user $user cannot run $staged/bin/outpost: every directory above it must permit access (chmod o+x), or omit --link"
swap_program
say "==> create the data directory $data_dir"
[ "$role" = server ] && mode=0700 || mode=0711
run install -d -o "$user" -g "$user" -m "$mode" "$data_dir"
write_unit
start_service
run rm -f "$unit.old"
show
