#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# loads.sh LOAD FOLDER SOURCES: one of the four loads of LTTng's table of 2006, of a fixed size.
# FOLDER is empty and may be filled; SOURCES is a folder of C programs. Prints nothing.
#   fetch   pages of HTML from a server of our own, one after the other
#   find    all names of the file system
#   gcc     the same, and the programs compiled meanwhile
#   ping    the same, and a flood of packets to this machine meanwhile
set -eu
load=$1 folder=$2 sources=$3

fetch() {
    i=0
    while [ $i -lt 100 ]; do
        echo "<html><body><a href='$i.html'>$i</a></body></html>" >"$folder/$i.html"
        i=$((i + 1))
    done
    python3 -u -m http.server --bind 127.0.0.1 --directory "$folder" 0 >"$folder/said" 2>&1 &
    server=$!
    trap 'kill $server' EXIT
    until port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$folder/said") && [ -n "$port" ]; do
        sleep 0.05
    done
    for _ in 1 2 3; do
        curl -s -o /dev/null "http://127.0.0.1:$port/[0-99].html"
    done
}

find_all() { find / -xdev >/dev/null 2>&1 || true; }

compile() {
    for source in "$sources"/*.c; do
        gcc -O2 -pthread -c -o "$folder/$(basename "$source" .c).o" "$source"
    done
}

flood() { ping -q -f -c 100000 127.0.0.1 >/dev/null; }

case $load in
    fetch) fetch ;;
    find) find_all ;;
    gcc) compile & find_all && wait $! ;;
    ping)
        flood &
        pinged=$!
        compile &
        compiled=$!
        find_all && wait $compiled && wait $pinged
        ;;
    *) exit 2 ;;
esac
