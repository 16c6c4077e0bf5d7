# shellcheck shell=dash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# What test_kernel_engine.py has done in one guest: each function leaves its logs, and what was
# said, in /out.

# kernel WORD...: a recording by the engine under test. A program, for its process id must be the
# recorder's.
cat >/bin/kernel <<'END'
#!/bin/sh
exec klogger record --engine kernel --modules /modules-under-test "$@"
END
chmod +x /bin/kernel

# started LOG: waits until a recorder has begun to write.
started() {
    tries=0
    until [ -s "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "no recorder has begun $1" >&2; return 1; }
        sleep 0.1
    done
}

# finish PID: ends a recorder.
finish() {
    kill -INT "$1"
    wait "$1"
}

# both NAME WORKLOAD...: by both engines at once; either records everything, or the command alone.
both() {
    name=$1
    shift
    kernel -s scheduler -a -o "/out/$name-all.klog" --buffer-size 16M 2>"/out/$name-all.err" &
    all=$!
    started "/out/$name-all.klog"
    klogger record -s scheduler -o "/out/$name-tree.klog" -- "$@" \
        >"/out/$name.json" 2>"/out/$name-tree.err"
    finish $all
}

both_the_other_way() {
    name=$1
    shift
    klogger record -s scheduler -a -o "/out/$name-all.klog" --buffer-size 16M \
        2>"/out/$name-all.err" &
    all=$!
    started "/out/$name-all.klog"
    kernel -s scheduler -o "/out/$name-tree.klog" -- "$@" >"/out/$name.json" 2>"/out/$name-tree.err"
    finish $all
}

# of_command NAME OPTION... -- WORKLOAD...
of_command() {
    name=$1
    shift
    kernel -o "/out/$name.klog" "$@" >"/out/$name.json" 2>"/out/$name.err"
    echo $? >"/out/$name.code"
}

switched() {
    kernel -s scheduler -a -o /out/switched.klog 2>/out/switched.err &
    recorder=$!
    started /out/switched.klog
    sleepers 1 20000 1000 >/dev/null &
    sleep 1
    klogger disable SCHEDOUT
    klogger mark 1 "off by the command"
    sleep 1
    klogger mark 2
    klogger enable SCHEDOUT
    sleep 1
    echo 0 >/proc/sys/klogger/SCHEDIN
    echo "3 off by the file" >/proc/sys/klogger/mark
    sleep 1
    echo 4 >/proc/sys/klogger/mark
    echo 1 >/proc/sys/klogger/SCHEDIN
    sleep 1
    finish $recorder
    kill %2 2>/dev/null
}

# Rings are exchanged under a flood.
resized() {
    kernel -s /flood.klogger -a -o /out/resized.klog --buffer-size 64K 2>/out/resized.err &
    recorder=$!
    started /out/resized.klog
    flood 60013 -1 >/out/resized.json &
    flooder=$!
    for size in 1 2 1 4 1; do
        sleep 0.3
        echo $size >/proc/sys/klogger/buffer_size ||
            echo "no ring of $size MB" >>/out/resized.refused
        echo $((size * 10)) >/proc/sys/klogger/lowwater
    done
    wait $flooder
    finish $recorder
    echo 10 >/proc/sys/klogger/lowwater
}

dumped() {
    kernel -s /flood.klogger --overwrite --buffer-size 64K -a -o /out/dumped.klog \
        2>/out/dumped.err &
    recorder=$!
    started /out/dumped.klog
    flood 200003 -1 >/dev/null &
    flooder=$!
    for _ in 1 2 3; do
        sleep 0.5
        kill -USR1 $recorder
    done
    wait $flooder
    finish $recorder
}

# The recorder dies while the modules log; the next one finds them loaded, and uses them.
killed() {
    kernel -s /flood.klogger -a -o /out/killed.klog 2>/out/killed.err &
    recorder=$!
    started /out/killed.klog
    flood 300007 -1 >/dev/null &
    flooder=$!
    sleep 0.5
    kill -KILL $recorder
    wait $recorder
    lsmod | grep -c '^klogger' >/out/killed.modules
    of_command after-killed -s /flood.klogger -- flood 1009 0
    wait $flooder
    rmmod klogger_flood && rmmod klogger
    lsmod | grep -c '^klogger' >/out/after-killed.modules
}

# NAME WORD...: what must be refused.
refused() {
    name=$1
    shift
    "$@" >/dev/null 2>"/out/refused-$name.err"
    echo $? >"/out/refused-$name.code"
}

bad_input() {
    mkdir /tmp/empty /tmp/foreign
    cp /modules-under-test/* /tmp/foreign/
    sed -i 's/SMP preempt/SMP preemqt/' /tmp/foreign/klogger.ko
    refused no-modules klogger record --engine kernel --modules /tmp/empty -s scheduler -- true
    refused other-kernel klogger record --engine kernel --modules /tmp/foreign -s scheduler -- true
    refused no-headers klogger record --engine kernel -s scheduler -- true
    # The guest has 1 GiB, and this leaves less than two rings of it.
    dd if=/dev/zero of=/tmp/ballast bs=1M count=400 2>/dev/null
    refused memory kernel -s scheduler --buffer-size 256M -- true
    rm /tmp/ballast
    refused modules-for-bpf klogger record --modules /modules-under-test -s scheduler -- true
    kernel -s scheduler -a -o /out/first.klog 2>/out/first.err &
    first=$!
    started /out/first.klog
    refused busy kernel -s scheduler -- true
    finish $first
    sed 's/recording began/recording begun/' /modules-under-test/klogger.ko >/tmp/other.ko
    insmod /tmp/other.ko
    refused other-version kernel -s scheduler -- true
    rmmod klogger
    insmod /modules-under-test/klogger.ko
    insmod /modules-under-test/klogger_flood.ko
    sed 's/Each change/Every change/' /flood.klogger >/tmp/flood.klogger
    refused other-text kernel -s /tmp/flood.klogger -- true
    of_command resident -s /flood.klogger -- flood 11 0
    lsmod | grep -c '^klogger' >/out/resident.modules
    rmmod klogger_flood && rmmod klogger
}
