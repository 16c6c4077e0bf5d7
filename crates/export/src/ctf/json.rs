// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The metadata of CTF 2: a sequence of JSON objects, each after the control character RS.

use super::metadata::{Metadata, Setting};
use super::stream::{
    Class, EVENT_CONTEXT, EVENT_HEADER, Member, PACKET_CONTEXT, PACKET_HEADER, Role,
};
use super::types::{Integer, Type, of_field};
use klogger_schema::layout::EventLayout;
use serde_json::{Map, Value, json};

/// The namespace of klogger's own attributes.
const NAMESPACE: &str = "klogger";

pub fn text(metadata: &Metadata) -> String {
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2, "uuid": metadata.uuid }),
        trace(metadata),
        clock(metadata),
    ];
    for class in &metadata.classes {
        fragments.push(stream(*class));
        fragments.extend(metadata.events.iter().map(|e| event(e, *class, metadata)));
    }
    fragments.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect()
}

fn trace(metadata: &Metadata) -> Value {
    let setting = |setting: &Setting| match setting {
        Setting::Number(n) => json!(n),
        Setting::Text(text) => json!(text),
    };
    let environment: Map<String, Value> =
        metadata.environment.iter().map(|(name, value)| (name.clone(), setting(value))).collect();
    json!({
        "type": "trace-class",
        "environment": environment,
        "packet-header-field-class": structure(PACKET_HEADER),
    })
}

fn clock(metadata: &Metadata) -> Value {
    let clock = &metadata.clock;
    json!({
        "type": "clock-class",
        "id": clock.name,
        "name": clock.name,
        "description": clock.description,
        "frequency": 1_000_000_000,
        "origin": "unix-epoch",
        "offset-from-origin": { "seconds": clock.offset_s, "cycles": clock.offset_ns },
        "precision": clock.precision_ns,
    })
}

fn stream(class: Class) -> Value {
    let context: Vec<Member> = PACKET_CONTEXT.iter().chain(class.members()).copied().collect();
    json!({
        "type": "data-stream-class",
        "id": class.id(),
        "name": class.name(),
        "default-clock-class-id": super::metadata::CLOCK,
        "packet-context-field-class": structure(&context),
        "event-record-header-field-class": structure(EVENT_HEADER),
        "event-record-common-context-field-class": structure(EVENT_CONTEXT),
    })
}

fn structure(members: &[Member]) -> Value {
    let member = |m: &Member| {
        let mut class = integer(&Integer::unsigned(m.bits));
        if m.role == Role::Uuid {
            class = json!({ "type": "static-length-blob", "length": 16 });
        }
        if let Some(role) = role(m.role) {
            class["roles"] = json!([role]);
        }
        json!({ "name": m.name, "field-class": class })
    };
    json!({ "type": "structure", "member-classes": members.iter().map(member).collect::<Vec<_>>() })
}

fn role(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Magic => "packet-magic-number",
        Role::Uuid => "metadata-stream-uuid",
        Role::Class => "data-stream-class-id",
        Role::Instance => "data-stream-id",
        Role::Time => "default-clock-timestamp",
        Role::PacketEnd => "packet-end-default-clock-timestamp",
        Role::ContentBits => "packet-content-length",
        Role::PacketBits => "packet-total-length",
        Role::PacketNumber => "packet-sequence-number",
        Role::Discarded => "discarded-event-record-counter-snapshot",
        Role::EventId => "event-record-class-id",
        Role::None => return None,
    })
}

fn event(event: &EventLayout, class: Class, metadata: &Metadata) -> Value {
    let mut members = Vec::new();
    for field in &event.fields {
        let class = match of_field(field, metadata.preamble) {
            Type::One(one) => integer(&one),
            Type::Array(n, element) => {
                json!({ "type": "static-length-array", "length": n,
                    "element-field-class": integer(&element) })
            }
            Type::Text => json!({ "type": "null-terminated-string" }),
        };
        let mut member = json!({ "name": field.name, "field-class": class });
        let about = [("doc", &field.doc), ("unit", &field.unit)];
        let known: Map<String, Value> = about
            .iter()
            .filter_map(|(name, text)| Some((name.to_string(), json!(text.as_ref()?))))
            .collect();
        if !known.is_empty() {
            member["attributes"] = json!({ NAMESPACE: known });
        }
        members.push(member);
    }
    json!({
        "type": "event-record-class",
        "id": event.id,
        "data-stream-class-id": class.id(),
        "name": event.name,
        "attributes": { NAMESPACE: { "schema": event.schema, "doc": event.doc } },
        "payload-field-class": { "type": "structure", "member-classes": members },
    })
}

fn integer(integer: &Integer) -> Value {
    let mut class =
        json!({ "length": integer.bits, "byte-order": "little-endian", "alignment": 8 });
    let bits = || integer.labels.iter().filter(|(value, _)| *value != 0);
    if integer.boolean {
        class["type"] = json!("fixed-length-boolean");
        return class;
    }
    if integer.flags
        && !integer.signed
        && bits().count() > 0
        && bits().all(|(value, _)| value.count_ones() == 1)
    {
        let flags: Map<String, Value> = bits()
            .map(|(value, name)| {
                (name.clone(), json!([[value.trailing_zeros(), value.trailing_zeros()]]))
            })
            .collect();
        class["type"] = json!("fixed-length-bit-map");
        class["flags"] = Value::Object(flags);
        return class;
    }
    class["type"] = json!(if integer.signed {
        "fixed-length-signed-integer"
    } else {
        "fixed-length-unsigned-integer"
    });
    if integer.base != 10 {
        class["preferred-display-base"] = json!(integer.base);
    }
    if !integer.labels.is_empty() {
        let mappings: Map<String, Value> = integer
            .labels
            .iter()
            .map(|(value, name)| (name.clone(), json!([[number(*value), number(*value)]])))
            .collect();
        class["mappings"] = Value::Object(mappings);
    }
    class
}

/// A value of 64 bits, signed or not.
fn number(value: i128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value as i64), |n| json!(n))
}
