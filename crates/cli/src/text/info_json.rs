// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger info --format json`. Times are full ns of the log's clock.

use super::info_text::LogInfo;
use klogger_log::damage::Damage;
use klogger_log::ledger::Key;
use klogger_log::origin::Origin;
use klogger_log::stats;
use serde_json::{Value, json};

pub fn page(about: &LogInfo) -> Value {
    let LogInfo { file, reader, stats, ledger } = about;
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
    let cpus = stats.origins.iter().filter_map(|(origin, count)| {
        Some(json!({ "cpu": origin.cpu_column()?, "logged": count.events, "bytes": count.bytes }))
    });
    let threads = stats.origins.iter().filter_map(|(origin, count)| {
        let Origin::Thread { stream, thread } = origin else { return None };
        let (tid, tgid) = (thread.tid, thread.tgid);
        Some(json!({ "stream": stream, "tid": tid, "tgid": tgid, "logged": count.events,
            "bytes": count.bytes }))
    });
    let damage: Vec<&Damage> = reader.damage().iter().chain(&stats.damage).collect();
    let total = stats.total();
    let mut page = json!({
        "file": file.to_string_lossy(),
        "bytes": reader.length(),
        "complete": reader.is_complete(),
        "sound": damage.iter().all(|d| d.key == Key::BeingWritten),
        "blocks": reader.blocks().len(),
        "being_written": reader.is_being_written(),
        "start_ns": reader.span().0,
        "end_ns": reader.span().1,
        "first_ns": stats.times.map(|t| t.0),
        "last_ns": stats.times.map(|t| t.1),
        "logged": total.events,
        "lost": ledger.lost(),
        "events": events.collect::<Vec<_>>(),
        "cpus": cpus.collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(),
        "ledger": ledger.entries,
        "snapshots": ledger.snapshots,
        "user_clock": ledger.user_clock.as_ref().or(preamble.clock.user.as_ref()),
        "kernel_clock": ledger.kernel_clock,
        "triggers": ledger.triggers,
        "damage": damage,
        "preamble": preamble,
    });
    if !reader.segments().is_empty() {
        page["segments"] = json!(reader.segments());
    }
    page
}
