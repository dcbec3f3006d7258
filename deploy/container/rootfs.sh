#!/bin/sh
# Writes the root file system of the image, in a build stage of Debian.
#
#     rootfs.sh PACKAGE ROOT
set -eu
umask 022

package=$1
root=$2
program=/usr/lib/outpost
# Conventional user of images without root.
user=65532

# The package uses an existing user and does not create one with another uid.
groupadd --gid "$user" outpost
useradd --uid "$user" --gid "$user" --no-create-home --home-dir /var/lib/outpost --shell /usr/sbin/nologin outpost
dpkg --install "$package"

install -d "$root/etc/outpost" "$root/usr/bin" "$root/usr/lib" "$root/bin"
install -d -m 1777 "$root/tmp"
install -d -o "$user" -g "$user" -m 0711 "$root/var/lib/outpost"
cp -a "$program" "$root/usr/lib/"
rm -rf "$root$program/node_modules/.cache"
cp /build/health.mjs "$root$program/"
for node in "$root$program"/node_modules/node-linux-*/bin/node; do
  ln -s "${node#"$root$program"/}" "$root$program/node"
done
printf 'root:x:0:0:root:/:/usr/sbin/nologin\noutpost:x:%s:%s::/var/lib/outpost:/usr/sbin/nologin\n' "$user" "$user" >"$root/etc/passwd"
printf 'root:x:0:\noutpost:x:%s:\n' "$user" >"$root/etc/group"
# Names are resolved from /etc/hosts first, as on a Debian host.
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"

# The shell of the launcher, the lock of a state directory, the pipes of "alloc run", and the libraries that these programs and Node load.
cp -L /bin/dash "$root/bin/sh"
cp -L /usr/bin/flock /usr/bin/mkfifo "$root$program/bin/"
ldd "$program"/node_modules/node-linux-*/bin/node /bin/dash /usr/bin/flock /usr/bin/mkfifo |
  sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | sort -u |
  while read -r library; do
    install -d "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
# The resolver of the C library loads these by name.
for library in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
  found=$(ldconfig -p | sed -n "s/^[[:space:]]*$library .*=> //p" | head -n 1)
  [ -z "$found" ] || { install -d "$root$(dirname "$found")" && cp -L "$found" "$root$found"; }
done
