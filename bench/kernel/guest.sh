#!/bin/busybox sh
# shellcheck shell=dash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# guest.sh ROUNDS ARM...: the guest's side of bench/kernel/run. The numbers of each arm go to
# /out/ARM.counts, as hits.c gives them; what there is to be said, to /out/ARM.said.
set -u
parameters=/sys/module/hits/parameters
tracing=/sys/kernel/tracing
export HOME=/root LTTNG_HOME=/root

# hit ARM PARAMETER: all rounds.
hit() {
    i=0
    while [ "$i" -lt "$rounds" ]; do
        cat "$parameters/$2" >>"/out/$1.counts"
        i=$((i + 1))
    done
}

# record ARM PARAMETER OPTION...: klogger records the command that hits, and nothing else.
record() {
    arm=$1 parameter=$2
    shift 2
    klogger record --buffer-size 16M -o "/out/$arm.klog" "$@" \
        -- sh /bin/guest.sh "$rounds" inside "$arm" "$parameter"
}

# record_all ARM PARAMETER OPTION...: klogger records the whole system.
record_all() {
    arm=$1 parameter=$2
    shift 2
    klogger record --buffer-size 16M -a -o "/out/$arm.klog" "$@" &
    recorder=$!
    until klogger mark 1 >/dev/null 2>&1; do
        kill -0 $recorder || return
        sleep 0.1
    done
    cat $parameters/code >"/out/$arm.code"
    hit "$arm" "$parameter"
    kill -INT $recorder
    wait $recorder
}

by_ring() {
    ring /klogger-ring.o 8388608 /dev/null &
    reader=$!
    until grep -q ready /out/ring.said; do
        kill -0 $reader || return
        sleep 0.1
    done
    hit ring tracepoint
    kill -INT $reader
    wait $reader
}

by_ftrace() {
    echo 16384 >$tracing/buffer_size_kb &&
        echo 1 >$tracing/events/power/cpu_frequency/enable &&
        hit ftrace tracepoint
    echo 0 >$tracing/events/power/cpu_frequency/enable
    cat $tracing/per_cpu/cpu0/stats
}

by_perf() {
    perf record -q -B -N -m 16M -a -e power:cpu_frequency -o /out/perf.data &
    reader=$!
    until [ -s /out/perf.data ]; do
        kill -0 $reader || return
        sleep 0.1
    done
    # It writes the file's head before it opens the events.
    sleep 2
    hit perf tracepoint
    kill -INT $reader
    wait $reader
}

by_bpftrace() {
    export BPFTRACE_PERF_RB_PAGES=4096
    bpftrace -B line -o /out/bpftrace.out -e \
        'BEGIN { printf("ready\n") }
        tracepoint:power:cpu_frequency {
            printf("%llu %d %d\n", nsecs, args->state, args->cpu_id)
        }' &
    reader=$!
    seconds=100
    until grep -q ready /out/bpftrace.out || ! waited; do :; done
    hit bpftrace tracepoint
    # When it is terminated, it drops what is in its buffers.
    size=
    until [ "$size" = "$(wc -c </out/bpftrace.out)" ]; do
        size=$(wc -c </out/bpftrace.out)
        sleep 2
    done
    kill -INT $reader
    seconds=100
    while waited; do :; done
    kill -KILL $reader 2>/dev/null
    wait $reader
}

# A second, while the reader lives, and there are some left.
waited() {
    kill -0 $reader 2>/dev/null && [ $seconds -gt 0 ] || return
    sleep 1
    seconds=$((seconds - 1))
}

# by_lttng ARM MODE OPTION...: the trace goes to /out/ARM.
by_lttng() {
    arm=$1 mode=$2
    shift 2
    lttng create "$arm" --output="/out/$arm" "$@" &&
        lttng enable-channel --kernel "--$mode" --subbuf-size=4M --num-subbuf=4 large &&
        lttng enable-event --kernel --channel=large power_cpu_frequency &&
        lttng start &&
        hit "$arm" tracepoint
    case $mode in overwrite) lttng snapshot record ;; esac
    lttng destroy "$arm"
}

# shellcheck disable=SC2086 # $in_kernel is several words
arm() {
    in_kernel='--engine kernel --modules /klogger'
    case $1 in
        empty) hit empty empty ;;
        no_probe) hit no_probe tracepoint ;;
        two_off) hit two_off two ;;
        eight_off) hit eight_off eight ;;
        two | eight) record_all "$1" "$1" $in_kernel -s /klogger/calls.klogger ;;
        kernel) record_all kernel tracepoint $in_kernel -s /klogger/frequency.klogger ;;
        scoped) record scoped tracepoint $in_kernel -s /klogger/frequency.klogger ;;
        bpf) record_all bpf tracepoint --engine bpf -s /klogger/frequency.klogger ;;
        ring) by_ring ;;
        ftrace) by_ftrace ;;
        perf) by_perf ;;
        bpftrace) by_bpftrace ;;
        lttng_overwrite) by_lttng lttng_overwrite overwrite --snapshot ;;
        lttng_discard) by_lttng lttng_discard discard ;;
        printk) hit printk printk && dmesg | grep -c 'frequency=' ;;
        *) echo "no arm $1" ;;
    esac
}

rounds=$1
shift
if [ "$1" = inside ]; then
    hit "$2" "$3"
    exit
fi
insmod /klogger/klogger.ko && insmod /klogger/hits.ko || exit 1
case " $* " in
    *" lttng"*)
        mkdir -p /var/run /etc
        echo tracing:x:100: >/etc/group
        lttng-sessiond --daemonize --kmod-probes=power >/out/lttng.said 2>&1 ;;
esac
cat $parameters/code >/out/before.code
for name; do
    arm "$name" >"/out/$name.said" 2>&1
done
cat $parameters/code >/out/after.code
