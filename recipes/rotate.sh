#!/bin/sh
# Writes its input, line by line as it comes, to LOGS/TASK.TYPE.N: begins behind the highest N that is there, goes on to the
# next file after MAX_MB mebibytes, and keeps the newest MAX_FILES. For text; what ends without a line feed gets one.
#   rotate.sh LOGS TASK stdout|stderr [MAX_FILES [MAX_MB]]
set -eu
LC_ALL=C # bytes, not characters
export LC_ALL
# Whoever ends the task must not end its log before the last line is in: the end of the input is the end.
trap '' TERM INT HUP

awk='awk'
# This one would wait for a buffer full of lines.
! awk -W version </dev/null 2>&1 | grep -qi mawk || awk='awk -W interactive'

highest=-1
for file in "$1/$2.$3".*; do
  index=${file##*.}
  case $index in *[!0-9]* | '') continue ;; esac
  [ "$index" -le "$highest" ] || highest=$index
done

prefix=$1/$2.$3. first=$((highest + 1)) files=${4:-10} megabytes=${5:-10}
export prefix first files megabytes
# shellcheck disable=SC2016,SC2086
exec $awk '
  function go_on(to) {
    if (name != "") close(name)
    at = to
    bytes = 0
    name = ENVIRON["prefix"] at
    printf "" >name
    fflush(name)
    if (at >= ENVIRON["files"]) system("rm -f -- \"$prefix\"" (at - ENVIRON["files"]))
  }
  BEGIN { go_on(ENVIRON["first"] + 0); limit = ENVIRON["megabytes"] * 1048576 }
  {
    if (bytes > 0 && bytes + length($0) + 1 > limit) go_on(at + 1)
    print >name
    fflush(name)
    bytes += length($0) + 1
  }
'
