// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger info --format json`. Times are full ns of the log's clock.

use super::info_text::About;
use klogger_log::damage::Damage;
use klogger_log::format::RECORDER_CPU;
use klogger_log::stats;
use serde_json::{Value, json};

pub fn page(about: &About) -> Value {
    let About { file, reader, stats, ledger } = about;
    let preamble = reader.preamble();
    let events = preamble.events.iter().zip(&stats.events).map(|(layout, count)| {
        json!({
            "name": layout.name,
            "schema": layout.schema,
            "logged": count.events,
            "bytes": count.bytes,
            "lost": stats::lost(ledger, &layout.name),
        })
    });
    let cpus = stats.cpus.iter().map(|(cpu, count)| {
        let number = if *cpu == RECORDER_CPU { -1 } else { i64::from(*cpu) };
        json!({ "cpu": number, "logged": count.events, "bytes": count.bytes })
    });
    let damage: Vec<&Damage> = reader.damage().iter().chain(&stats.damage).collect();
    let total = stats.total();
    json!({
        "file": file.to_string_lossy(),
        "bytes": reader.length(),
        "complete": reader.is_complete(),
        "sound": damage.is_empty(),
        "blocks": reader.blocks().len(),
        "first_ns": stats.times.map(|t| t.0),
        "last_ns": stats.times.map(|t| t.1),
        "logged": total.events,
        "lost": ledger.lost(),
        "events": events.collect::<Vec<_>>(),
        "cpus": cpus.collect::<Vec<_>>(),
        "ledger": ledger.entries,
        "damage": damage,
        "preamble": preamble,
    })
}
