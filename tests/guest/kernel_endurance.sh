# shellcheck shell=dash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# What test_kernel_endurance.py has done in one guest, with the functions of kernel_engine.sh: each
# function leaves its logs, and what was said, in /out.
control=/proc/sys/klogger
run=/sys/module/hammer/parameters/run

# record_hammer NAME OPTION...: a recorder of what the module hammer logs.
record_hammer() {
    name=$1
    shift
    kernel -s /m/hammer.klogger -a -o "/out/$name.klog" "$@" 2>"/out/$name.err" &
    recorder=$!
    started "/out/$name.klog"
}

# end_hammer NAME: no more events, and then no recorder.
end_hammer() {
    echo 0 >$run
    cat $run >"/out/$1.attempts"
    finish "$recorder"
    echo $? >"/out/$1.code"
}

# resize MB: while the recorder has not seen the rings of the last change there can be no other.
resize() {
    tries=0
    until echo "$1" >$control/buffer_size 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "no ring of $1 MB" >>/out/refused; return; }
        sleep 0.1
    done
}

toggled() {
    record_hammer toggled --buffer-size 1M
    echo 1 >$run
    n=0
    while [ $n -lt "$1" ]; do
        n=$((n + 1))
        echo $((n % 2)) >$control/HAMMER_TEXT
        echo "$n while it is hammered" >$control/mark || echo "no mark $n" >>/out/refused
        echo $((n % 9 * 10 + 5)) >$control/lowwater
        [ $((n % 4)) != 0 ] || resize $((1 << n / 4 % 3))
    done
    echo 1 >$control/HAMMER_TEXT
    end_hammer toggled
    echo 10 >$control/lowwater
    echo 4 >$control/buffer_size
}

killed_often() {
    for _ in 1 2 3; do
        record_hammer dead
        echo 1 >$run
        sleep 0.3
        kill -KILL $recorder
        wait $recorder
        # No recording: what is logged now is in no log.
        sleep 0.1
        echo 0 >$run
    done
    record_hammer survivor --buffer-size 1M
    echo 1 >$run
    sleep 1
    end_hammer survivor
}

# A CPU goes and comes, also while rings are exchanged, and it has none.
unplugged() {
    cpu=/sys/devices/system/cpu/cpu1/online
    record_hammer unplugged --buffer-size 1M
    echo 1 >$run
    for size in 2 1 2; do
        echo 0 >$cpu
        resize $size
        echo 1 >$cpu
        sleep 0.3
        resize $((3 - size))
    done
    end_hammer unplugged
    echo 0 >$cpu
    record_hammer plugged --buffer-size 1M
    echo 1 >$cpu
    echo 1 >$run
    sleep 1
    end_hammer plugged
    echo 4 >$control/buffer_size
}

# Rings that are too large for the memory, in the middle of a recording.
short_of_memory() {
    dd if=/dev/zero of=/tmp/ballast bs=1M count="$1" 2>/dev/null
    record_hammer short --buffer-size 1M
    echo 1 >$run
    grep -c klogger_ring /proc/vmallocinfo >/out/short.before
    echo 256 2>/out/short.refused >$control/buffer_size
    grep -c klogger_ring /proc/vmallocinfo >/out/short.after
    rm /tmp/ballast
    end_hammer short
}

remembered() {
    insmod /modules-under-test/klogger_remember.ko
    of_command remembered-first -s /remember.klogger -- flood 1009 0
    of_command remembered-then -s /remember.klogger -- flood 1009 0
    rmmod klogger_remember
}

abused() {
    insmod /modules-under-test/klogger_flood.ko
    abuse >/out/abuse
    echo $? >/out/abuse.code
    of_command after-abuse -s /flood.klogger -- flood 1009 0
    rmmod klogger_flood
}

# load ROUND: once, while a program causes events; with a recording in some rounds.
load() {
    insmod /modules-under-test/klogger.ko && insmod /modules-under-test/klogger_flood.ko ||
        echo "$1: in" >>/out/refused
    [ $(($1 % 10)) != 0 ] || of_command "load-$1" -s /flood.klogger -- flood 101 1
    rmmod klogger_flood && rmmod klogger || echo "$1: out" >>/out/refused
}

memory() {
    echo 3 >/proc/sys/vm/drop_caches
    sleep 1
    awk '/^(Slab|SUnreclaim|Percpu|VmallocUsed):/ { print $1, $2 }' /proc/meminfo
    echo "areas: $(wc -l </proc/vmallocinfo)"
}

# loaded ROUNDS: after some more, for the first ones fill caches.
loaded() {
    flood 1000000000 0 >/dev/null &
    n=0
    while [ $n -lt $((20 + $1)) ]; do
        [ $n != 20 ] || memory >/out/memory.before
        n=$((n + 1))
        load $n
    done
    memory >/out/memory.after
    grep klogger /proc/vmallocinfo >/out/vmallocinfo
    killall flood
}

# In a kernel that can be told to have no memory.
starved() {
    mount -t debugfs debug /sys/kernel/debug
    for kind in failslab fail_page_alloc; do
        echo N >/sys/kernel/debug/$kind/ignore-gfp-wait
        echo 0 >/sys/kernel/debug/$kind/verbose
    done
    echo N >/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem
    echo 0 >/sys/kernel/debug/fail_page_alloc/min-order
    abuse /modules-under-test/klogger.ko /modules-under-test/klogger_flood.ko >/out/starved
    echo $? >/out/starved.code
    grep -c klogger /proc/vmallocinfo >/out/starved.left
    dmesg >/out/starved.dmesg
}

endure() {
    insmod /modules-under-test/klogger.ko && insmod /m/hammer.ko || exit 3
    toggled "$TOGGLES"
    killed_often
    unplugged
    short_of_memory "$BALLAST"
    remembered
    rmmod hammer
    abused
    rmmod klogger
    loaded "$LOADS"
}
