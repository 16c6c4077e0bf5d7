// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/golden/c/NAME.klogger` and the event functions generated from it, in `NAME.events.h`. The
//! tests are found by path: one more case is one more schema there, and KLOGGER_BLESS=1 writes the
//! expected text.
//!
//! The functions are then compiled for the host with stubs of the primitives, and run. What they
//! wrote is read back with the layouts that Rust computed: so C and Rust agree on every byte, or
//! the test fails.

mod support;

use klogger_codegen::events::events_header;
use klogger_codegen::{BUILTIN_SCHEMA, user};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Scalar, Schema, Shape};
use klogger_schema::{Options, parse};
use std::fmt::Write;
use std::fs;
use std::process::Command;
use support::{expect, schemas};

#[test]
fn generated_functions_are_as_expected() {
    for (path, schema) in schemas("c") {
        expect(&path.with_extension("events.h"), &events_header(&schema).text);
    }
}

/// The generated part of a program's header, without the runtime, which is the same in all of them.
fn generated_part(schema: &Schema) -> String {
    let builtin =
        parse("klogger.klogger", BUILTIN_SCHEMA, &Options { builtin: true, ..Options::default() });
    let text = user::header(schema, &builtin.unwrap().schema).unwrap().text;
    let (head, rest) = text.split_once("/*\n * Fixed-width types").unwrap();
    let (_, tail) = rest.split_once("#if KLOGGER_RUNTIME").unwrap();
    let number = format!("{:#018x}", user::runtime_number());
    let unit = format!("{}_", schema.name);
    let text = format!("{head}[runtime]\n\n#if KLOGGER_RUNTIME{tail}").replace(&number, "[number]");
    text.lines().map(|line| without_hash(line, &unit) + "\n").collect()
}

/// The unit's symbol without the number that changes with the runtime.
fn without_hash(line: &str, unit: &str) -> String {
    let symbol = format!("klogger_unit_{unit}");
    match line.split_once(&symbol) {
        Some((before, after)) => format!("{before}{symbol}[hash]{}", &after[16..]),
        None => line.into(),
    }
}

#[test]
fn headers_for_programs_are_as_expected() {
    for (path, mut schema) in schemas("c") {
        for event in &mut schema.events {
            event
                .fields
                .retain(|f| !matches!(f.context, Some(context) if !context.row().in_programs));
        }
        expect(&path.with_extension("klogger.h"), &generated_part(&schema));
    }
}

#[test]
fn a_context_that_only_the_kernel_has_is_refused() {
    let text = "schema s\nevent E { context tid, cgroup  int x }\n";
    let schema = parse("s.klogger", text, &Options::default()).unwrap().schema;
    let refused = user::check(&schema).unwrap_err();
    assert_eq!(refused.message, "event E: a program cannot log `context cgroup`");
}

/// The primitives of record.h for a plain program: one buffer.
const STUBS: &str = r#"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <linux/types.h>
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define KLOGGER_PAD8(n) (((n) + 7u) & ~7u)
static _Alignas(8) char buffer[1 << 16];
static unsigned used;
struct klogger_hit { int unused; };
struct klogger_text { unsigned length; char bytes[256]; };
#define klogger_may(index, scope) ((void)(index), (scope))
static __attribute__((unused)) int klogger_in_scope_current(void) { return 1; }
static __attribute__((unused)) int klogger_in_scope(int tid) { (void)tid; return 1; }
static void *klogger_reserve(struct klogger_hit *hit, int index, unsigned size)
{
	void *at = buffer + used;

	(void)hit, (void)index;
	if (size % 8 || used + size > sizeof(buffer))
		abort();
	used += size;
	return at;
}
static void klogger_commit(struct klogger_hit *hit, void *record, __u64 index)
{
	(void)hit;
	*(__u64 *)record = 7ull << 16 | (index + 1);
}
#define klogger_copy(index, dst, src, size) memcpy(dst, src, size)
#define klogger_store(field, value) ((field) = (value))
#define klogger_copy_text(index, dst, src, size) strncpy(dst, src, (size) - 1)
static __attribute__((unused)) void klogger_text_read(int index, struct klogger_text *text,
    const char *src)
{
	(void)index;
	text->length = strlen(src) & 255;
	memcpy(text->bytes, src, text->length);
}
static __attribute__((unused)) void klogger_text_store(void *dst, struct klogger_text *text)
{
	memcpy(dst, text->bytes, text->length);
}
#define klogger_string_length(index, src, most) ((unsigned)strnlen(src, most))
#define klogger_string_store(index, dst, src, length, most) memcpy(dst, src, length)
static __attribute__((unused)) int klogger_context_tid(void) { return 101; }
static __attribute__((unused)) int klogger_context_tgid(void) { return 102; }
static __attribute__((unused)) int klogger_context_prio(void) { return 103; }
static __attribute__((unused)) __u64 klogger_context_cgroup(void) { return 104; }
static __attribute__((unused)) int klogger_context_ppid(void) { return 105; }
static __attribute__((unused)) int klogger_context_irq(void) { return 106; }
static __attribute__((unused)) __u32 klogger_context_netns(void) { return 107; }
static __attribute__((unused)) int klogger_context_pidns_tid(void) { return 108; }
#define klogger_context_comm(to) memset(to, 109, sizeof(to))
static __attribute__((unused)) __u64 klogger_context_memcg(void) { return 110; }
static __attribute__((unused)) __u32 klogger_context_stack(void) { return 111; }
static __attribute__((unused)) __u32 klogger_context_user_stack(void) { return 112; }
#define klogger_context_otel_trace(to) memset(to, 113, sizeof(to))
#define klogger_context_otel_span(to) memset(to, 114, sizeof(to))
"#;

/// The value that the n-th field of an event is given.
fn value(scalar: Scalar, n: usize) -> i64 {
    match scalar {
        Scalar::Bool => 1,
        Scalar::I8 => -3 - n as i64,
        Scalar::U8 => 200 + n as i64,
        Scalar::I16 => -300 - n as i64,
        Scalar::U16 => 60_000 + n as i64,
        Scalar::I32 => -70_000 - n as i64,
        Scalar::U32 => 4_000_000_000 + n as i64,
        Scalar::I64 => -(1 << 40) - n as i64,
        Scalar::U64 => (1 << 50) + n as i64,
    }
}

fn argument(shape: Shape, scalar: Scalar, n: usize) -> String {
    match shape {
        Shape::One => format!("{}ll", value(scalar, n)),
        Shape::Array(count) => {
            let items: Vec<String> =
                (0..count as usize).map(|i| format!("{}ll", value(scalar, n + i))).collect();
            format!(
                "(const void *)(__typeof__(((struct RECORD *)0)->FIELD)){{{}}}",
                items.join(", ")
            )
        }
        Shape::Text(_) => format!("\"t{n}\""),
        Shape::Tail(_) => format!("\"a longer text, number {n}\""),
    }
}

fn program(schema: &Schema) -> String {
    let mut c = format!(
        "{STUBS}\n#include \"{}.events.h\"\nint main(void)\n{{\n\tstruct klogger_hit hit = \
         {{0}};\n",
        schema.name
    );
    for e in &schema.events {
        let fields = e.fields.iter().enumerate().filter(|(_, f)| f.context.is_none());
        let arguments: String = fields
            .map(|(n, f)| {
                let record = format!("klogger_record_{}", e.name);
                format!(
                    ", {}",
                    argument(f.shape, f.scalar, n)
                        .replace("RECORD", &record)
                        .replace("FIELD", &f.name)
                )
            })
            .collect();
        let _ = writeln!(c, "\tklogger_event_{}(&hit{arguments});", e.name);
    }
    c += "\treturn fwrite(buffer, used, 1, stdout) != 1;\n}\n";
    c
}

fn number(bytes: &[u8], scalar: Scalar) -> i64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let value = i64::from_le_bytes(wide);
    let unused = 64 - 8 * scalar.size();
    if scalar.signed() { value << unused >> unused } else { value }
}

#[test]
fn what_c_writes_is_what_rust_reads() {
    for (path, schema) in schemas("c") {
        let folder = tempfile::tempdir().unwrap();
        let header = events_header(&schema);
        fs::write(folder.path().join(&header.name), &header.text).unwrap();
        fs::write(folder.path().join("main.c"), program(&schema)).unwrap();
        let compile = Command::new("cc")
            .current_dir(folder.path())
            .args([
                "-std=gnu11",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-pointer-sign",
                "main.c",
                "-o",
                "main",
            ])
            .output()
            .unwrap();
        assert!(
            compile.status.success(),
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&compile.stderr)
        );
        let output = Command::new(folder.path().join("main")).output().unwrap();
        assert!(output.status.success());
        check(&schema, &output.stdout);
    }
}

fn check(schema: &Schema, mut bytes: &[u8]) {
    for (index, e) in schema.events.iter().enumerate() {
        let layout = EventLayout::new(&schema.name, e, index as u16 + 1);
        assert_eq!(
            u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            7 << 16 | (index as u64 + 1),
            "{}",
            e.name
        );
        let mut tails = 0;
        for (n, f) in layout.fields.iter().enumerate() {
            let at = &bytes[f.offset as usize..];
            let size = f.scalar.size() as usize;
            let what = format!("{}.{}", e.name, f.name);
            match (f.context, f.shape) {
                (Some(context), Shape::Text(length)) => {
                    let expected = vec![101 + context as u8; length as usize];
                    assert_eq!(at[..length as usize], expected, "{what}")
                }
                (Some(context), _) => {
                    assert_eq!(number(&at[..size], f.scalar), 101 + context as i64, "{what}")
                }
                (None, Shape::One) => {
                    assert_eq!(number(&at[..size], f.scalar), value(f.scalar, n), "{what}")
                }
                (None, Shape::Array(count)) => {
                    for i in 0..count as usize {
                        assert_eq!(
                            number(&at[i * size..(i + 1) * size], f.scalar),
                            value(f.scalar, n + i),
                            "{what}[{i}]"
                        );
                    }
                }
                (None, Shape::Text(_)) => {
                    assert!(at.starts_with(format!("t{n}\0").as_bytes()), "{what}")
                }
                (None, Shape::Tail(_)) => {
                    let expected = format!("a longer text, number {n}");
                    let length = u32::from(u16::from_le_bytes([at[0], at[1]]));
                    let from = (layout.fixed + tails) as usize;
                    let text = &bytes[from..from + length as usize];
                    assert_eq!(text, expected.as_bytes(), "{what}");
                    tails += length;
                }
            }
        }
        bytes = &bytes[layout.record_size(tails) as usize..];
    }
    assert!(bytes.is_empty(), "C wrote more than the layouts say");
}
