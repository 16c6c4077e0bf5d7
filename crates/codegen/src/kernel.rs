// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Generates the kernel engine's C: a header for kernel code with `klogger()` calls, and modules
//! with a schema's probes.

pub mod attach_points;
mod bench;
mod module;
mod tracepoints;

pub use attach_points::{AttachPoint, prototype_complaint};
pub use module::{core, module};
pub use tracepoints::{Tracepoint, Tracepoints, find, question};

use crate::events::{arguments, event};
use crate::header::{embed, number_of, off_function, parameters, usage};
use crate::made::Maker;
use crate::text::{Text, comment, literal, quote};
use crate::{NamedText, Refusal};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Event, Field, Schema};
use std::borrow::Cow;

/// What this engine makes of a schema.
pub static MAKER: Maker = Maker {
    attaches: |kind| attach_points::of(kind).is_some(),
    texts: |schema, _| Ok(vec![checked_header(schema, false)?]),
    header: Some(|schema| checked_header(schema, false)),
    in_tree_header: Some(|schema| checked_header(schema, true)),
};

fn checked_header(schema: &Schema, in_tree: bool) -> Result<NamedText, Refusal> {
    match foreign_context(schema) {
        None => Ok(header(schema, in_tree)),
        Some((_, message)) => Err(Refusal::of_the_schema(message, OF_BPF.into())),
    }
}

/// What to do about a context that only the bpf engine has.
pub const OF_BPF: &str = "record with --engine bpf, or without it";

/// The first field of an event that modules cannot fill, and the message that says so.
pub fn foreign_context(schema: &Schema) -> Option<(&Field, String)> {
    let fields = schema.events.iter().flat_map(|e| e.fields.iter().map(move |f| (e, f)));
    let mut foreign = fields.filter_map(|(event, field)| {
        let context = field.context.filter(|context| !context.row().in_modules)?;
        let (event, word) = (&event.name, context.word());
        Some((field, format!("event {event}: the kernel engine has no `context {word}`")))
    });
    foreign.next()
}

/// The headers that event functions need, in the order of their dependencies.
const PARTS: [&str; 5] =
    ["klogger/types.h", "klogger/ring.h", "klogger/record.h", "kernel.h", "klogger.kernel.h"];

/// The core module's sources, and the headers that they include.
pub const SOURCES: &[(&str, &str)] = &[
    ("klogger/types.h", include_str!("../../../runtime/include/klogger/types.h")),
    ("klogger/ring.h", include_str!("../../../runtime/include/klogger/ring.h")),
    ("klogger/record.h", include_str!("../../../runtime/include/klogger/record.h")),
    ("klogger/writer.h", include_str!("../../../runtime/include/klogger/writer.h")),
    ("klogger/device.h", include_str!("../../../runtime/include/klogger/device.h")),
    ("klogger.kernel.h", include_str!("../../../runtime/kernel/klogger.kernel.h")),
    ("kernel.h", include_str!("../../../runtime/kernel/kernel.h")),
    ("core.h", include_str!("../../../runtime/kernel/core.h")),
    ("core.c", include_str!("../../../runtime/kernel/core.c")),
    ("schemata.c", include_str!("../../../runtime/kernel/schemata.c")),
    ("ring.c", include_str!("../../../runtime/kernel/ring.c")),
    ("writer.c", include_str!("../../../runtime/kernel/writer.c")),
    ("probe.c", include_str!("../../../runtime/kernel/probe.c")),
    ("stack.c", include_str!("../../../runtime/kernel/stack.c")),
    ("sysctl.c", include_str!("../../../runtime/kernel/sysctl.c")),
    ("benchmark.c", include_str!("../../../runtime/kernel/benchmark.c")),
    ("device.c", include_str!("../../../runtime/kernel/device.c")),
    ("map.c", include_str!("../../../runtime/kernel/map.c")),
];

/// `NAME.klogger.h`, for any kernel code. `in_tree`: for code of a kernel tree, where
/// CONFIG_KLOGGER decides whether calls are compiled.
pub fn header(schema: &Schema, in_tree: bool) -> NamedText {
    let name = format!("{}.klogger.h", schema.name);
    let mut out = Text::new(&name);
    let off = match in_tree {
        true => "defined(KLOGGER_OFF) || !IS_REACHABLE(CONFIG_KLOGGER)",
        false => "defined(KLOGGER_OFF)",
    };
    head(&mut out, schema, in_tree);
    out.push(format_args!(
        "#ifndef KLOGGER_SCHEMA_{0}\n#define KLOGGER_SCHEMA_{0}\n\n#if {off}\n",
        schema.name
    ));
    self::off(&mut out, schema);
    out.push("#else\n");
    embed(&mut out, &parts());
    events(&mut out, schema);
    out.push("\n#endif\n#endif\n");
    out.push(format_args!(
        "\n#if defined(KLOGGER_DEFINE) && !defined(KLOGGER_DEFINED_{0}) && !({off})\n#define \
         KLOGGER_DEFINED_{0}\n",
        schema.name
    ));
    unit(&mut out, schema, "");
    out.push("#endif\n");
    NamedText { name, text: out.finish() }
}

fn head(out: &mut Text, schema: &Schema, in_tree: bool) {
    let off = match in_tree {
        true => "CONFIG_KLOGGER=n or -DKLOGGER_OFF removes every call.",
        false => "-DKLOGGER_OFF removes every call.",
    };
    out.push(format_args!(
        "/* SPDX-License-Identifier: GPL-2.0-only */\n\
         /*\n * Events of the schema {0}{1}. Generated by klogger; edit the schema instead.\n \
         *\n{2} *\n \
         * One C file says `#define KLOGGER_DEFINE` before it includes this; it calls \
         klogger_register(&klogger_unit_{0})\n \
         * when it begins, and klogger_unregister(&klogger_unit_{0}) when it ends. {off}\n */\n",
        schema.name,
        schema.doc.as_ref().map_or(String::new(), |d| format!(": {}", comment(d))),
        schema.events.iter().map(usage).collect::<String>()
    ));
}

fn parts() -> Vec<&'static str> {
    PARTS
        .iter()
        .filter_map(|part| SOURCES.iter().find(|(name, _)| name == part).map(|(_, text)| *text))
        .collect()
}

/// Identifies the version of the runtime in a header.
pub fn runtime_number() -> u64 {
    number_of(&parts())
}

/// The definitions with klogger off: nothing is registered and nothing is logged.
fn off(out: &mut Text, schema: &Schema) {
    out.push(
        "#ifndef KLOGGER_KERNEL_H\n#define KLOGGER_KERNEL_H\n\
         #define klogger(event, ...) do { if (0) klogger_off_##event(__VA_ARGS__); } while (0)\n\
         struct klogger_unit;\n\
         static inline int klogger_register(struct klogger_unit *unit) { (void)unit; return 0; }\n\
         static inline void klogger_unregister(struct klogger_unit *unit) { (void)unit; }\n\
         #endif\n",
    );
    out.push(format_args!("extern struct klogger_unit klogger_unit_{};\n", schema.name));
    schema.events.iter().for_each(|e| off_function(out, schema, e));
}

/// The schema's events, and the calls that log them.
fn events(out: &mut Text, schema: &Schema) {
    let name = &schema.name;
    out.push(format_args!(
        "\n#ifndef KLOGGER_CALLS\n#define KLOGGER_CALLS\n/* Without a hit of its own, as there is \
         no probe: each call is one. */\n\
         #undef klogger\n#define klogger(event, ...) \\\n\
         \tdo {{ if (klogger_wanted_##event()) klogger_call_##event(__VA_ARGS__); }} while \
         (0)\n#endif\n\n\
         extern struct klogger_unit klogger_unit_{name};\nextern struct static_key_false \
         klogger_keys_{name}[{}];\n\n\
         #define KLOGGER_UNIT klogger_unit_{name}\n#define KLOGGER_KEYS klogger_keys_{name}\n",
        keys(schema)
    ));
    if has_triggers(schema) {
        out.push(TRIGGERS);
    }
    for (index, e) in schema.events.iter().enumerate() {
        event(out, schema, e, index);
        call(out, schema, e, index);
    }
    out.push("\n#undef KLOGGER_UNIT\n#undef KLOGGER_KEYS\n");
}

/// What events with triggers need. A benchmark fires none.
const TRIGGERS: &str = "
void klogger_fire_slow(struct klogger_ring *ring, u64 time, u32 trigger, u32 id);

#ifdef CONFIG_X86_64
/* Preserves all registers but one, so that an event that fires nothing need not save some. */
static __always_inline void klogger_call_fire(struct klogger_ring *ring, u64 time, u32 trigger,
\t\t\t\t\t      u32 id)
{
\tunsigned long unused;

\tasm volatile(\"call klogger_fire_thunk\"
\t\t     : \"=a\"(unused), ASM_CALL_CONSTRAINT
\t\t     : \"D\"(ring), \"S\"(time), \"d\"(trigger), \"c\"(id)
\t\t     : \"memory\", \"cc\");
}
#else
#define klogger_call_fire klogger_fire_slow
#endif

#ifndef klogger_fire
#define klogger_fire(hit, trigger, index) \\
\tklogger_call_fire((hit)->ring, (hit)->time, trigger, (u32)KLOGGER_UNIT.base + (index))
#endif

/* Copies a C string, cut to size - 1 bytes, and returns its length; 0 if it cannot be read. */
static __always_inline u32 klogger_text_part(char *to, u32 size, const char *from)
{
\treturn from ? klogger_read_text(to, from, size) : 0;
}
";

fn has_triggers(schema: &Schema) -> bool {
    schema.events.iter().any(|e| !e.triggers.is_empty())
}

/// The text that a module brings into the kernel: that of the schema, and the triggers that are
/// compiled into it, so that another recording does not use it.
pub fn text_of(schema: &Schema) -> Cow<'_, str> {
    if !has_triggers(schema) {
        return schema.text.as_str().into();
    }
    let mut text = format!("{}\n// Of klogger record --trigger:\n", schema.text);
    for event in &schema.events {
        for trigger in &event.triggers {
            text += &format!("// {}: {}: {}\n", trigger.number, event.name, trigger.condition);
        }
    }
    text.into()
}

/// An array has at least one element.
fn keys(schema: &Schema) -> usize {
    schema.events.len().max(1)
}

/// The meaning of `klogger(EVENT, ...)` in a function of kernel code: a hit with one event.
fn call(out: &mut Text, schema: &Schema, event: &Event, index: usize) {
    let layout = EventLayout::new(&schema.name, event, 1);
    let names: String = arguments(&layout).map(|f| format!(", {}", f.name)).collect();
    out.push(format_args!(
        "\nstatic __always_inline bool klogger_wanted_{0}(void)\n{{\n\treturn \
         klogger_is_on({index});\n}}\n\n\
         static __always_inline void klogger_call_{0}({1})\n{{\n\tstruct klogger_hit klogger_hit = \
         {{}};\n\n\
         \tklogger_event_{0}(&klogger_hit{names});\n\tklogger_leave(&klogger_hit);\n}}\n",
        event.name,
        parameters(&layout)
    ));
}

/// The schema as the core module knows it; once in a module, or in the kernel. `more`: further
/// members.
fn unit(out: &mut Text, schema: &Schema, more: &str) {
    let (name, text) = (&schema.name, text_of(schema));
    let list: String =
        schema.events.iter().map(|e| format!("\t{{ .name = \"{}\" }},\n", e.name)).collect();
    out.push(format_args!(
        "__read_mostly DEFINE_STATIC_KEY_ARRAY_FALSE(klogger_keys_{name}, {});\n\n\
         static struct klogger_event klogger_events_{name}[{}] = {{\n{list}}};\n\n\
         struct klogger_unit klogger_unit_{name} = {{\n\t.name = {},\n\t.text = {},\n\t.length = \
         {},\n\t.events = {},\n\
         \t.event = klogger_events_{name},\n\t.key = klogger_keys_{name},\n\t.owner = \
         THIS_MODULE,\n{more}}};\n\n\
         EXPORT_SYMBOL_GPL(klogger_unit_{name});\nEXPORT_SYMBOL_GPL(klogger_keys_{name});\n",
        keys(schema),
        keys(schema),
        quote(name),
        literal(&text),
        text.len(),
        schema.events.len(),
    ));
}
