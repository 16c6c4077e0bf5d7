#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes and removes files in an ext4 file system, and prints what ftrace counts meanwhile. The
# module is loaded already.
tracing=/sys/kernel/tracing
echo 'p:new ext4_mb_new_blocks' >>$tracing/kprobe_events
echo 1 >$tracing/events/kprobes/new/enable
echo 1 >$tracing/events/ext4/ext4_request_blocks/enable
mkdir /tmp/fs
mount -o loop /tmp/disk /tmp/fs || exit 1
i=0
mkdir /tmp/fs/folder
while [ $i -lt "$1" ]; do
    head -c $((4096 * (1 + i % 7))) /dev/zero >/tmp/fs/file$i
    i=$((i + 1))
done
sync
i=0
while [ $i -lt "$1" ]; do
    rm /tmp/fs/file$i
    i=$((i + 1))
done
rmdir /tmp/fs/folder
umount /tmp/fs
echo 0 >$tracing/events/ext4/ext4_request_blocks/enable
echo 0 >$tracing/events/kprobes/new/enable
grep -w ext4_request_blocks: $tracing/trace | sed 's/.* len \([0-9]*\) .*/requested \1/'
echo "new $(grep -w new $tracing/kprobe_profile)"
