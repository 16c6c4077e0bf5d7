/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What generated event functions are made of. Each engine's runtime header defines the primitives:
 *
 *   struct klogger_hit            one probe hit: its clock reading and its ring
 *   klogger_may(id, scope)        is this event enabled, `scope` true, and, if its rate is limited,
 *                                 is it within its rate?
 *   klogger_in_scope_current()    is the running thread being recorded?
 *   klogger_in_scope(tid)         is this thread being recorded?
 *   klogger_reserve(hit, id, n)   n bytes in the ring, or NULL: the event is lost and counted
 *   klogger_commit(hit, rec, id)  store the header word: the record is complete
 *   klogger_copy(id, dst, src, n)    n bytes from memory that may be bad; zeros if it is
 *   klogger_copy_text(id, dst, src, n)   a C string, cut to n - 1 bytes; empty if it cannot be read
 *   klogger_text_read(id, text, src)     the same for a `string`; klogger_text_store(dst, text)
 *                                        puts it in its place
 *   klogger_string_length(id, src, most)   for several `string`, or one of another length than 255:
 *                                        the bytes of the text, at most `most`;
 *                                        klogger_string_store(id, dst, src, length, most) reads
 *                                        that many, and zeros where it cannot
 */
#ifndef KLOGGER_RECORD_H
#define KLOGGER_RECORD_H

#define KLOGGER_PAD8(n) (((n) + 7u) & ~7u)
#define KLOGGER_HEADER(time, id) ((time) << 16 | (id))

#ifdef __KERNEL__
/*
 * One store for each field. Without this gcc combines fields in a register, which takes more
 * instructions.
 */
#define klogger_store(field, value) WRITE_ONCE(field, value)
#else
#define klogger_store(field, value) ((field) = (value))
#endif

/*
 * The call of the paper: klogger(EVENT, field, ...), with the fields in the order of their
 * declaration. The prefix is reserved, so that an event may have any name, "copy" or "commit" too.
 */
#define klogger(event, ...) klogger_event_##event(klogger_hit, ##__VA_ARGS__)

#endif
