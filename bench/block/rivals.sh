#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# In a guest whose clock counts instructions: reads of a disk that does nothing. First one after
# another, by fio, with tracers by turns: prints `run NAME READS READS_PER_SECOND BYTES` for each
# run, where BYTES is what the tracer has written; before and after each tracer there is one
# without. Then many at once, by reads.c, with klogger: prints `many COUNTED READS_PER_SECOND`,
# COUNTED by the kernel, and `log ABOUT`, what `klogger info` says of the log, in one line.
# usage: rivals.sh ROUNDS MANY READS...
set -u
rounds=$1 many=$2
shift 2
out=/tmp/block-rivals
mkdir -p $out /sys/kernel/debug
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
insmod /block-modules/configfs.ko 2>/dev/null
insmod /block-modules/null_blk.ko gb=1 queue_mode=2 irqmode=0 submit_queues=1 || exit 1
disk=/dev/nullb0

# one READS: reads per second.
one() {
    fio --name=read --filename=$disk --rw=randread --bs=4k --direct=1 --ioengine=psync \
        --norandommap --randseed=7 --number_ios="$1" --minimal 2>/dev/null | cut -d ';' -f 8
}

without() { echo "run without $1 $(one "$1") 0"; }

# counted: reads that the kernel has completed.
counted() { awk '{print $1}' /sys/block/nullb0/stat; }

# until_has FILE WORD: waits at most a minute.
until_has() {
    for _ in $(seq 600); do
        grep -q "$2" "$1" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

stop() {
    kill -INT "$1"
    wait "$1"
}

# start_klogger OPTION...: after what it does at the start.
start_klogger() {
    klogger record -s block -a -o $out/log --messages json "$@" 2>$out/said &
    until_has $out/said '"started"' && sleep 2
}

# with_klogger NAME READS OPTION...
with_klogger() {
    name=$1 reads=$2
    shift 2
    start_klogger "$@" || return
    rate=$(one "$reads")
    stop $!
    echo "run $name $reads $rate $(wc -c <$out/log)"
    rm -f $out/log
}

# with_blktrace READS
with_blktrace() {
    cd $out || return
    blktrace -d $disk -o blk -b 1024 -n 8 >said 2>&1 &
    sleep 2
    rate=$(one "$1")
    stop $!
    echo "run blktrace $1 $rate $(cat blk.* | wc -c)"
    rm -f blk.*
    cd /
}

at_once() {
    start_klogger || return
    before=$(counted)
    rate=$(/reads $disk "$many")
    after=$(counted)
    stop $!
    echo "many $((after - before)) $rate"
    echo "log $(klogger info --format json $out/log | tr -d '\n')"
    rm -f $out/log
}

one "$1" >/dev/null
for reads in "$@"; do
    for _ in $(seq "$rounds"); do
        without "$reads"
        with_blktrace "$reads"
        without "$reads"
        with_klogger klogger "$reads"
        without "$reads"
        with_klogger klogger-issues "$reads" --set issues=true
    done
    without "$reads"
done
[ "$many" = 0 ] || at_once
