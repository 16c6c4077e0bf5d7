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

struct socket___klogger {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct sock;

/* The socket of an open file; NULL if it is none. S_IFSOCK is 0140000. */
static __always_inline struct sock *klogger_file_sock(const void *file)
{
	const struct file___klogger *f = file;
	const struct socket___klogger *socket;
	struct sock *sk = NULL;

	if ((f->f_inode->i_mode & 0170000) != 0140000)
		return NULL;
	socket = f->private_data;
	bpf_probe_read_kernel(&sk, sizeof(sk), &socket->sk);
	return sk;
}

#endif
