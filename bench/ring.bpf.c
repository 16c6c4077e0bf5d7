// SPDX-License-Identifier: GPL-2.0-only
// A plain program with a BPF ring buffer, as libbpf's users write it: reserve, fill, submit. The
// time and two ints. The reader is woken when a good part has come, as the kernel's documentation
// advises for high rates, not for each event.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef TIMES
#define TIMES 1
#endif
#define WAKE_BYTES (256 * 1024)

struct event {
	__u64 time;
	__s32 option;
	__s32 argument;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

static __always_inline void log_event(__u64 time, __s32 option, __s32 argument)
{
	struct event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);

	if (!e) {
		__u32 zero = 0;
		__u64 *count = bpf_map_lookup_elem(&dropped, &zero);

		if (count)
			++*count;
		return;
	}
	e->time = time;
	e->option = option;
	e->argument = argument;
	bpf_ringbuf_submit(e, bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= WAKE_BYTES
				      ? BPF_RB_FORCE_WAKEUP
				      : BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/" TRACEPOINT) int ring_probe(__u64 *context)
{
	__u64 time = bpf_ktime_get_ns();

#pragma unroll
	for (int i = 0; i < TIMES; i++)
		log_event(time, (__s32)context[0], (__s32)context[1]);
	return 0;
}

char license_text[] SEC("license") = "GPL";
