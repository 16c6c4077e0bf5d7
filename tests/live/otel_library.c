/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The variable of `context otel` in a library. With LARGE it needs a block of its own. */
struct record;

#ifdef LARGE
static __thread char large[LARGE];
#endif
__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;

void otel_publish(struct record *record)
{
#ifdef LARGE
	__atomic_store_n(&large[1], 1, __ATOMIC_RELAXED);
#endif
	__atomic_store_n(&otel_thread_ctx_v1, record, __ATOMIC_RELAXED);
}
