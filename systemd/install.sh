#!/bin/sh
# Installs outpost as a systemd service from this checkout, brings an installed one up to date, or takes it away again.
# Every step is printed before it is done; with -n it is printed only. Run it again at any time: what is right already
# stays as it is, the configuration and the data always do.
set -eu
umask 022

usage() {
  cat <<'END'
Usage: systemd/install.sh [options]              install or upgrade, then start
       systemd/install.sh --uninstall [options]  stop and remove unit and program; configuration and data stay
  -n, --dry-run      print the steps and do none of them
  --link             link the program to this checkout instead of copying it
  --no-start         install only: neither enable nor start the service
  --purge            with --uninstall: remove configuration, data (logs of tasks included) and the user, too
  --prefix DIR       where the program goes                 (/opt/outpost)
  --config-dir DIR   where the configuration is             (/etc/outpost)
  --data-dir DIR     where state and allocations are        (/var/lib/outpost)
  --unit-dir DIR     where the unit goes                    (/etc/systemd/system)
  --user NAME        whom it runs as; made when missing     (outpost)
END
}

fail() {
  printf 'install.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

dry='' uninstall='' purge='' link='' start=yes
prefix=/opt/outpost config_dir=/etc/outpost data_dir=/var/lib/outpost unit_dir=/etc/systemd/system user=outpost
while [ $# -gt 0 ]; do
  case $1 in
    -n | --dry-run) dry=yes ;;
    --uninstall) uninstall=yes ;;
    --purge) purge=yes ;;
    --link) link=yes ;;
    --no-start) start='' ;;
    -h | --help) usage && exit 0 ;;
    --prefix | --config-dir | --data-dir | --unit-dir | --user)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case $1 in
        --prefix) prefix=$2 ;;
        --config-dir) config_dir=$2 ;;
        --data-dir) data_dir=$2 ;;
        --unit-dir) unit_dir=$2 ;;
        --user) user=$2 ;;
      esac
      shift
      ;;
    *) usage >&2 && fail "what is \"$1\"?" 2 ;;
  esac
  shift
done
[ -z "$purge" ] || [ -n "$uninstall" ] || fail '--purge works only together with --uninstall' 2
# They end up in the unit, and some are removed at the end: nothing that would mean something else there.
for path in "$prefix" "$config_dir" "$data_dir" "$unit_dir"; do
  case $path in
    *[!A-Za-z0-9/._-]* | */. | */.. | */./* | */../* | *//* | */) fail "$path: give a plain absolute path" 2 ;;
    /*/*) ;;
    *) fail "$path: give an absolute path with two parts at least" 2 ;;
  esac
done
case $user in '' | [!a-z_]* | *[!a-z0-9_-]*) fail "$user is not the name of a user" 2 ;; esac

checkout=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd -P)
unit=$unit_dir/outpost.service

if [ -z "$dry" ]; then
  [ "$(id -u)" -eq 0 ] || fail 'run it as root (sudo), or with -n to see what it would do'
  if [ -n "$start" ] && [ ! -d /run/systemd/system ]; then
    fail "systemd does not run this machine. Use --no-start to put the files in place only, or let your own supervisor run: $checkout/bin/outpost agent -config $config_dir"
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
  if [ -n "$start" ] && [ -e "$unit" ]; then run systemctl disable --now outpost.service; fi
  say "==> remove unit and program"
  run rm -f "$unit"
  # A checkout that somebody works in is not ours to remove.
  if [ "$prefix" = "$checkout" ]; then
    say "  ($prefix is this checkout, it stays)"
  elif [ -L "$prefix" ] || [ -e "$prefix/bin/outpost" ]; then
    run rm -rf "$prefix" "$prefix.new" "$prefix.old"
  fi
  systemd daemon-reload
  if [ -z "$purge" ]; then
    say "==> configuration ($config_dir), data ($data_dir) and user ($user) stay; --purge removes them"
    return
  fi
  say "==> remove configuration, data and user"
  # Whatever a task has mounted below stays untouched.
  run rm -rf --one-file-system "$config_dir" "$data_dir"
  ! id "$user" >/dev/null 2>&1 || run userdel "$user"
}

make_user() {
  id "$user" >/dev/null 2>&1 && return
  say "==> make the user $user"
  nologin=$(command -v nologin || echo /usr/sbin/nologin)
  run useradd --system --user-group --no-create-home --home-dir "$data_dir" --shell "$nologin" "$user"
}

# Beside the old program first: what runs never sees half of the new one. $staged is where the new one is.
stage_program() {
  say "==> the program goes to $prefix"
  staged=$prefix.new
  if [ "$prefix" = "$checkout" ]; then
    say "  (this checkout is there already)"
    staged=$prefix
    return
  fi
  [ -d "$checkout/node_modules" ] || fail "the dependencies are missing, run first: (cd $checkout && npm ci --omit=dev)"
  run mkdir -p "$(dirname -- "$prefix")"
  run rm -rf "$staged" "$prefix.old"
  if [ -n "$link" ]; then
    run ln -s "$checkout" "$staged"
    return
  fi
  run mkdir "$staged"
  for part in bin src dist systemd recipes docs package.json package-lock.json agent.hcl.example README.md LICENSE; do
    [ ! -e "$checkout/$part" ] || run cp -R "$checkout/$part" "$staged/"
  done
  # Followed when it is a link itself; the links inside stay what they are.
  run cp -R -H "$checkout/node_modules" "$staged/node_modules"
  run chown -R -h 0:0 "$staged"
  run chmod -R u+rwX,go+rX,go-w "$staged"
}

swap_program() {
  [ "$staged" != "$prefix" ] || return 0
  say "==> put the program in place"
  if [ -e "$prefix" ] || [ -L "$prefix" ]; then run mv "$prefix" "$prefix.old"; fi
  run mv "$staged" "$prefix"
}

write_config() {
  say "==> the configuration is in $config_dir"
  # Who may read which token's hash is nobody else's business.
  run install -d -o 0 -g "$user" -m 0750 "$config_dir"
  for file in "$config_dir"/*.hcl "$config_dir"/*.json; do
    # What "outpost cluster keys" made is no configuration of its own: it goes with one.
    if [ -e "$file" ] && [ "$file" != "$config_dir/cluster.hcl" ]; then
      say "  (there is $file, nothing is written)"
      return
    fi
  done
  say "  write $config_dir/agent.hcl with a new token"
  [ -z "$dry" ] || return 0
  # No command line ever holds the token: printf is the shell's own.
  token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  [ ${#token} -eq 64 ] || fail 'cannot make a token: /dev/urandom gives nothing'
  hash=$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)
  (
    umask 027
    cat >"$config_dir/agent.hcl.new" <<END
# The smallest file for a host that answers for itself; every setting there is: $prefix/agent.hcl.example
data_dir = "$data_dir"

# Loopback only. Before it listens elsewhere, give it a certificate: see "Credentials" in $prefix/docs/operating.md
bind_addr = "127.0.0.1"

client {
  enabled = true
}

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
  )
  chgrp "$user" "$config_dir/agent.hcl.new"
  mv "$config_dir/agent.hcl.new" "$config_dir/agent.hcl"
}

write_unit() {
  say "==> the unit is $unit"
  run mkdir -p "$unit_dir"
  say "  write $unit"
  [ -z "$dry" ] || return 0
  sed -e "s#/opt/outpost/#$prefix/#g" -e "s#/etc/outpost\$#$config_dir#" -e "s#/var/lib/outpost\$#$data_dir#" \
    -e "s#^\\(User\\|Group\\)=outpost#\\1=$user#" -e "s#-o outpost -g outpost#-o $user -g $user#" \
    "$checkout/systemd/outpost.service" >"$unit.new"
  chmod 0644 "$unit.new"
  mv "$unit.new" "$unit"
}

start_service() {
  [ -n "$start" ] || return 0
  say "==> start, and wait until it answers"
  systemd daemon-reload
  systemd enable outpost.service
  # Also starts one that does not run. Returns when the agent has said that it is ready.
  if ! systemd restart outpost.service; then
    [ ! -e "$prefix.old" ] || say "  (the program as it was before is still in $prefix.old)"
    fail 'it does not start; the reason: journalctl -u outpost -n 20'
  fi
}

show() {
  [ -z "$dry" ] || return 0
  url=http://127.0.0.1:4646
  [ -z "$start" ] || [ ! -r "$data_dir/http.addr" ] || url=$(cat "$data_dir/http.addr")
  say "==> done. To look at it:"
  say "  systemctl status outpost"
  say "  journalctl -u outpost -f"
  say "  ln -s $prefix/bin/outpost /usr/local/bin/     makes \"outpost alloc run\" and the rest a command"
  if [ -z "${token:-}" ]; then
    say "  curl -H 'X-Nomad-Token: …' $url/v1/agent/self?pretty"
    return
  fi
  say "  curl -H 'X-Nomad-Token: $token' $url/v1/agent/self?pretty"
  say "==> the token (shown this once; the configuration holds its hash only): $token"
}

if [ -n "$uninstall" ]; then
  remove
  exit 0
fi
make_user
write_config
stage_program
say "==> check the configuration, with the new program"
run "$staged/bin/outpost" validate "$config_dir" || fail "nothing was changed but $config_dir and $staged"
# systemd starts it as that user, before any capability is in force.
run setpriv --reuid "$user" --regid "$user" --clear-groups "$staged/bin/outpost" version ||
  fail "the user $user cannot run $staged/bin/outpost: every directory above must let others pass, or leave out --link"
swap_program
say "==> the data is in $data_dir"
run install -d -o "$user" -g "$user" -m 0711 "$data_dir"
write_unit
start_service
[ "$staged" = "$prefix" ] || run rm -rf "$prefix.old"
show
