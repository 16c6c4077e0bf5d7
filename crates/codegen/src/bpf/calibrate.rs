// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Generates the program with which the recorder measures what each event costs, before it records.
//!
//! It is loaded separately, with its own rings, at a tracepoint that the recorder can hit at any
//! time. A number that the recorder sets selects what a hit does: nothing ([`EMPTY`]), only what
//! precedes an event's fields ([`ENTER`]), or log the event `FIRST_EVENT + n`. So all kinds can
//! alternate, and each is reached by the same few comparisons.

use crate::events::{arguments, is_conditional, unconditional};
use crate::stack::Asks;
use crate::text::Text;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Schema, Shape};

/// The C function, and the memory that it shares with the recorder: `u32 arm`, `u32 tid`.
pub const PROGRAM: &str = "klogger_calibrate";
pub const MEMORY: &str = ".bss.klogger_c";
/// Tracepoints in system calls that do nothing else, the cheaper one first. The program uses no
/// argument of the tracepoint, so either can be used.
pub const PLACES: [&str; 2] = ["task_prctl_unknown", "itimer_state"];
/// The contents of strings.
pub const TEXT: &str = "klogger";

pub const EMPTY: u32 = 0;
pub const ENTER: u32 = 1;
pub const FIRST_EVENT: u32 = 2;

/// Adds the program. `stacks`: those for which this object has a table.
pub(crate) fn program(out: &mut Text, schema: &Schema, stacks: Asks) {
    let events: Vec<_> =
        schema.events.iter().map(|e| EventLayout::new(&schema.name, e, 1)).collect();
    let all = || events.iter().flat_map(arguments);
    out.push(format_args!(
        "\n/* What an event costs: the recorder hits this program before it records. */\n\
         struct {{\n\t__u32 arm;\n\t__u32 tid;\n}} klogger_calibration SEC(\"{MEMORY}\");\n"
    ));
    if all().any(|f| matches!(f.shape, Shape::Text(_) | Shape::Tail(_))) {
        out.push(format_args!("static const char klogger_any_text[256] = \"{TEXT}\";\n"));
    }
    let arrays = all().filter(|f| matches!(f.shape, Shape::Array(_)));
    let longest = arrays.map(|f| f.shape.align_and_size(f.scalar).1.div_ceil(8)).max();
    if let Some(words) = longest {
        out.push(format_args!(
            "static const unsigned long long klogger_any_numbers[{words}] = {{ 1 }};\n"
        ));
    }
    for (index, event) in schema.events.iter().enumerate().filter(|(_, e)| is_conditional(e)) {
        unconditional(out, schema, event, index);
    }
    let hit = if stacks.any() { ".context = klogger_arguments" } else { "" };
    let place = PLACES[PLACES.len() - 1];
    out.push(format_args!(
        "\nSEC(\"?tp_btf/{place}\")\nint {PROGRAM}(__attribute__((unused)) unsigned long long \
         *klogger_arguments)\n{{\n\
         \tstruct klogger_hit klogger_hit = {{{hit}}};\n\
         \t__attribute__((unused)) __u32 klogger_tid = READ_ONCE(klogger_calibration.tid);\n\n\
         \tif (!klogger_begin(klogger_arguments, 0))\n\t\treturn 0;\n\
         \tswitch (READ_ONCE(klogger_calibration.arm)) {{\n\tcase {EMPTY}:\n\t\tbreak;\n\
         \tcase {ENTER}:\n\t\tklogger_enter(&klogger_hit);\n\t\tbreak;\n"
    ));
    for ((layout, event), case) in events.iter().zip(&schema.events).zip(FIRST_EVENT..) {
        let values: String = arguments(layout).map(|f| format!(", {}", value(f, stacks))).collect();
        let name = &event.name;
        // The costs are of events that are logged.
        let function = if is_conditional(event) { "klogger_always" } else { "klogger_event" };
        out.push(format_args!(
            "\tcase {case}:\n\t\t{function}_{name}(&klogger_hit{values});\n\t\tbreak;\n"
        ));
    }
    out.push("\t}\n\tklogger_end(&klogger_hit, klogger_arguments, 0);\n\treturn 0;\n}\n");
}

/// A value for a field; a number is the recorder's thread, which is in scope.
fn value(field: &FieldLayout, stacks: Asks) -> String {
    match field.shape {
        // Which of the two a body passes is not known: they cost about the same.
        Shape::One if field.decode == Decode::Stack && stacks.kernel => {
            "klogger_stack_of(klogger_arguments)".into()
        }
        Shape::One if field.decode == Decode::Stack && stacks.user => {
            "klogger_user_stack_of(klogger_arguments, 0)".into()
        }
        Shape::One => "klogger_tid".into(),
        Shape::Array(_) => "(const void *)klogger_any_numbers".into(),
        Shape::Text(_) | Shape::Tail(_) => "klogger_any_text".into(),
    }
}
