#!/bin/sh
# Boots this system's own systemd as a machine of its own: other processes, mounts, network, host name; the disk is the
# host's, and nothing that is written to it stays. Needs root. Ends when its standard input does.
#   machine.sh DIR MODULES     DIR: an empty directory, which the machine calls /run/machine. MODULES: another directory of
#   the host, which is /run/machine/node_modules there: under /tmp a service could not see it. Prints the number of the machine's first process, for nsenter
set -eu

if [ "${1:-}" != --inside ]; then
  directory=$1
  cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
  [ -n "$cgroups" ] || { echo 'no cgroup2 here' >&2 && exit 1; }
  group=$cgroups/outpost-test-$$
  mkdir "$group"
  # shellcheck disable=SC2016
  sh -c 'echo $$ >"$1/cgroup.procs" && exec unshare --fork --kill-child --pid --mount --uts --ipc --cgroup --net -- \
    sh "$2" --inside "$3" "$4"' sh "$group" "$0" "$directory" "$2" </dev/null &
  machine=$!
  trap '' INT HUP
  first=''
  while [ -z "$first" ] && kill -0 "$machine"; do
    sleep 0.05
    # The one child of unshare, once it has become systemd.
    read -r first _ <"/proc/$machine/task/$machine/children" || : # there is no newline at its end
    [ "$(cat "/proc/${first:-none}/comm" 2>/dev/null)" = systemd ] || first=''
  done
  echo "$first"
  # Until standard input is closed.
  cat >/dev/null
  kill -KILL "$machine" 2>/dev/null || true
  wait "$machine" 2>/dev/null || true
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ -d "$group" ] || exit 0
    sleep 0.3
  done
  exit 0
fi

directory=$2
modules=$3
mount --make-rprivate /
mkdir "$directory/root" "$directory/disk"
mount -t tmpfs tmpfs "$directory/disk"
mkdir "$directory/disk/changes" "$directory/disk/work"
root=$directory/root
mount -t overlay -o "lowerdir=/,upperdir=$directory/disk/changes,workdir=$directory/disk/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
# What systemd would start by itself takes seconds and is not what is asked for: only the journal and what it needs.
units=$root/usr/lib/systemd/system
mount -t tmpfs tmpfs "$root/etc/systemd/system"
for wants in sysinit sockets timers local-fs; do
  [ ! -d "$units/$wants.target.wants" ] || mount -t tmpfs tmpfs "$units/$wants.target.wants"
done
printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service\n' >"$root/etc/systemd/system/machine.target"
mkdir -p "$root/run/log/journal" "$root/run/machine"
: >"$root/etc/fstab"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
mount --bind "$directory" "$root/run/machine"
mkdir "$root/run/machine/node_modules"
mount --bind "$modules" "$root/run/machine/node_modules"
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
# As systemd does where it boots a whole computer: credentials come as a mount that has to spread.
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=machine.target --log-target=journal --show-status=no
