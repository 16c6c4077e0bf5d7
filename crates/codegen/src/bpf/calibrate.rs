// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The program by which the recorder measures what each event costs here, before it records.
//!
//! It is loaded alone, with rings of its own, at a tracepoint that the recorder can hit at will. A
//! number that the recorder sets says what a hit does: nothing ([`EMPTY`]), only what comes before
//! an event's fields ([`ENTER`]), or log the event `FIRST_EVENT + n`. So all can take turns, and
//! the way to each is the same few comparisons.

use crate::events::arguments;
use crate::text::Text;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Schema, Shape};

/// The C function, and the memory that it shares with the recorder: `u32 arm`, `u32 tid`.
pub const PROGRAM: &str = "klogger_calibrate";
pub const MEMORY: &str = ".bss.klogger_c";
/// Tracepoints that a system call hits which does nothing else, the cheaper one first. The program
/// takes no argument of theirs, so that the recorder may choose.
pub const PLACES: [&str; 2] = ["task_prctl_unknown", "itimer_state"];
/// What texts have in them.
pub const TEXT: &str = "klogger";

pub const EMPTY: u32 = 0;
pub const ENTER: u32 = 1;
pub const FIRST_EVENT: u32 = 2;

/// Writes it. `stacks`: whether this object has a table for stacks.
pub(crate) fn program(out: &mut Text, schema: &Schema, stacks: bool) {
    let events: Vec<_> =
        schema.events.iter().map(|e| EventLayout::new(&schema.name, e, 1)).collect();
    let all = || events.iter().flat_map(arguments);
    out.push(format_args!(
        "\n/* What an event costs: the recorder hits this program before it records. */\n\
         struct {{\n\t__u32 arm;\n\t__u32 tid;\n}} klogger_calibration SEC(\"{MEMORY}\");\n"
    ));
    if all().any(|f| matches!(f.shape, Shape::Text(_) | Shape::Tail)) {
        out.push(format_args!("static const char klogger_any_text[256] = \"{TEXT}\";\n"));
    }
    let arrays = all().filter(|f| matches!(f.shape, Shape::Array(_)));
    let longest = arrays.map(|f| f.shape.align_and_size(f.scalar).1.div_ceil(8)).max();
    if let Some(words) = longest {
        out.push(format_args!(
            "static const unsigned long long klogger_any_numbers[{words}] = {{ 1 }};\n"
        ));
    }
    let place = PLACES[PLACES.len() - 1];
    out.push(format_args!(
        "\nSEC(\"?tp_btf/{place}\")\nint {PROGRAM}(__attribute__((unused)) unsigned long long \
         *klogger_arguments)\n{{\n\
         \tstruct klogger_hit klogger_hit = {{}};\n\t__attribute__((unused)) __u32 klogger_tid = \
         READ_ONCE(klogger_calibration.tid);\n\n\
         \tif (!klogger_begin(klogger_arguments, 0))\n\t\treturn 0;\n\
         \tswitch (READ_ONCE(klogger_calibration.arm)) {{\n\tcase {EMPTY}:\n\t\tbreak;\n\
         \tcase {ENTER}:\n\t\tklogger_enter(&klogger_hit);\n\t\tbreak;\n"
    ));
    for (event, case) in events.iter().zip(FIRST_EVENT..) {
        let values: String = arguments(event).map(|f| format!(", {}", value(f, stacks))).collect();
        let name = &event.name;
        out.push(format_args!(
            "\tcase {case}:\n\t\tklogger_event_{name}(&klogger_hit{values});\n\t\tbreak;\n"
        ));
    }
    out.push("\t}\n\tklogger_end(&klogger_hit, klogger_arguments, 0);\n\treturn 0;\n}\n");
}

/// A number is the recorder's thread, which is in scope.
fn value(field: &FieldLayout, stacks: bool) -> String {
    match field.shape {
        Shape::One if stacks && field.decode == Decode::Stack => {
            "klogger_stack_of(klogger_arguments)".into()
        }
        Shape::One => "klogger_tid".into(),
        Shape::Array(_) => "(const void *)klogger_any_numbers".into(),
        Shape::Text(_) | Shape::Tail => "klogger_any_text".into(),
    }
}
