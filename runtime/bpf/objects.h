/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What bodies can ask of sockets. Pointers may come from anywhere, also from `void *`
 * members of the kernel, so that members are read by a helper.
 */
#ifndef KLOGGER_BPF_OBJECTS_H
#define KLOGGER_BPF_OBJECTS_H

#include "kernel.h"

struct in6_addr___klogger {
	__u8 bytes[16];
};

/* The beginning of a `struct sock`. */
struct sock_common___klogger {
	unsigned short skc_family;
	unsigned char skc_state;
	unsigned short skc_num;
	unsigned short skc_dport;
	unsigned int skc_daddr;
	unsigned int skc_rcv_saddr;
	struct in6_addr___klogger skc_v6_daddr;
	struct in6_addr___klogger skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

#define klogger_sock_member(sk, member)                                                      \
	({                                                                                   \
		struct sock_common___klogger *klogger_sk = (void *)(sk);                     \
		typeof(klogger_sk->member) klogger_value = 0;                                \
                                                                                             \
		bpf_probe_read_kernel(&klogger_value, sizeof(klogger_value), &klogger_sk->member); \
		klogger_value;                                                               \
	})

#define klogger_sock_family(sk) klogger_sock_member(sk, skc_family)
#define klogger_sock_state(sk) klogger_sock_member(sk, skc_state)
#define klogger_sock_port(sk) klogger_sock_member(sk, skc_num)
#define klogger_sock_peer_port(sk) __builtin_bswap16(klogger_sock_member(sk, skc_dport))
#define klogger_sock_address(sk) klogger_sock_member(sk, skc_rcv_saddr)
#define klogger_sock_peer(sk) klogger_sock_member(sk, skc_daddr)
/* For fields of 16 bytes, which are read from there. */
#define klogger_sock_address6(sk) \
	((const void *)&((const struct sock_common___klogger *)(sk))->skc_v6_rcv_saddr)
#define klogger_sock_peer6(sk) \
	((const void *)&((const struct sock_common___klogger *)(sk))->skc_v6_daddr)

/*
 * A field `u8 NAME[20] as endpoint`: family, port (both in the machine's byte order) and address of
 * one side of a socket. A body declares one, has it filled, and passes it to klogger().
 */
typedef __u8 klogger_endpoint[20] __attribute__((aligned(8)));

#define KLOGGER_INET 2
#define KLOGGER_INET6 10

static __always_inline void klogger_endpoint_begin(__u8 *to, __u16 family, __u16 port)
{
	__builtin_memset(to, 0, sizeof(klogger_endpoint));
	*(__u16 *)to = family;
	if (family == KLOGGER_INET || family == KLOGGER_INET6)
		*(__u16 *)(to + 2) = port;
}

static __always_inline void klogger_sock_side(__u8 *to, const void *sock, int peer)
{
	struct sock_common___klogger *sk = (void *)sock;
	__u16 family = klogger_sock_family(sk);

	klogger_endpoint_begin(to, family,
			       peer ? klogger_sock_peer_port(sk) : klogger_sock_port(sk));
	if (family == KLOGGER_INET)
		bpf_probe_read_kernel(to + 4, 4, peer ? &sk->skc_daddr : &sk->skc_rcv_saddr);
	else if (family == KLOGGER_INET6)
		bpf_probe_read_kernel(to + 4, 16,
				      peer ? &sk->skc_v6_daddr : &sk->skc_v6_rcv_saddr);
}

/* Its own side, as getsockname() has it, and the other one, as getpeername() has it. */
#define klogger_sock_source(to, sk) klogger_sock_side(to, sk, 0)
#define klogger_sock_destination(to, sk) klogger_sock_side(to, sk, 1)

/*
 * What a `struct sockaddr` of the running program says. Its members are at the same places in all
 * kernels. Returns 0, or an error.
 */
static __always_inline long klogger_user_endpoint(__u8 *to, const void *sockaddr)
{
	const char *from = sockaddr;
	__u16 head[2] = {};
	long error = bpf_probe_read_user(&head[0], 2, from);

	if (head[0] == KLOGGER_INET || head[0] == KLOGGER_INET6)
		error = bpf_probe_read_user(&head[1], 2, from + 2);
	klogger_endpoint_begin(to, head[0], __builtin_bswap16(head[1]));
	if (head[0] == KLOGGER_INET)
		error = bpf_probe_read_user(to + 4, 4, from + 4);
	else if (head[0] == KLOGGER_INET6)
		error = bpf_probe_read_user(to + 4, 16, from + 8);
	return error;
}

struct socket___klogger {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct sock;

/* The socket of an open file; NULL if it is none. S_IFSOCK is 0140000. */
static __always_inline struct sock *klogger_file_sock(const void *file)
{
	const struct file___klogger *f = file;
	const struct socket___klogger *socket = NULL;
	const struct inode___klogger *inode = NULL;
	struct sock *sk = NULL;
	unsigned short mode = 0;

	if (!f || bpf_probe_read_kernel(&inode, sizeof(inode), &f->f_inode) ||
	    bpf_probe_read_kernel(&mode, sizeof(mode), &inode->i_mode) ||
	    (mode & 0170000) != 0140000 ||
	    bpf_probe_read_kernel(&socket, sizeof(socket), &f->private_data))
		return NULL;
	bpf_probe_read_kernel(&sk, sizeof(sk), &socket->sk);
	return sk;
}

struct page___klogger {
	unsigned long flags;
} __attribute__((preserve_access_index));

/* The number of the page frame that a `struct page` stands for; 0 of NULL. */
static __always_inline __u64 klogger_page_pfn(const void *page)
{
	__u64 size = __builtin_preserve_type_info(*(struct page___klogger *)0, 1 /* its size */);
	__u64 at = 0, begin = 0;

	if (!page || !size)
		return 0;
	/* The verifier refuses arithmetic with pointers. What a helper copies is a number. */
	bpf_probe_read_kernel(&at, sizeof(at), &page);
	if (klogger_config.vmemmap == KLOGGER_VMEMMAP_ALIGNED)
		return (at & (KLOGGER_VMEMMAP_ALIGNMENT - 1)) / size;
	bpf_probe_read_kernel(&begin, sizeof(begin), (const void *)klogger_config.vmemmap);
	return (at - begin) / size;
}

#endif
