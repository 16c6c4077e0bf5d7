// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What events cost, measured by the modules themselves: for each event there is a file, and
//! reading it logs the event many times.

use crate::costs::{SPREAD, judge};
use klogger_log::preamble::{Costs, EventCost};
use klogger_os::tsc;
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::fs;
use std::io::{ErrorKind, Result};

const FILES: &str = "/proc/sys/klogger/benchmarks";
/// Passes: each gives one cost. If they spread too far, the cost is not reported.
const PASSES: usize = 7;

/// Only while no recording runs. The built-in events are rare and left out. The measurement
/// contains no tracepoint and no call of a probe, so these have no cost of their own. `counter`:
/// the engine's clock is the TSC rather than ns.
pub fn measure(units: &[(&CompiledSchema, u16)], counter: bool) -> Costs {
    let before = tsc::pair();
    let events = units.iter().skip(1).flat_map(|(unit, _)| &unit.schema.events);
    let ticks = |event: &str| (0..PASSES).map(|_| read(event)).collect::<Result<Vec<f64>>>();
    let measured: Vec<_> = events.map(|e| (e.name.clone(), ticks(&e.name))).collect();
    let after = tsc::pair();
    let tick_ns = match counter {
        true => {
            after.1.saturating_sub(before.1) as f64 / after.0.saturating_sub(before.0).max(1) as f64
        }
        false => 1.0,
    };
    let hits = read("iterations").map_or(0, |n| n as u64 * PASSES as u64);
    let mut costs = Costs { place: FILES.into(), hits, ..Costs::default() };
    for (event, passes) in measured {
        let cost =
            passes.map(|ticks| judge(&ticks.iter().map(|t| t * tick_ns).collect::<Vec<_>>()));
        match &cost {
            Err(e) => costs.why = format!("cannot read {FILES}/{event}: {e}"),
            Ok(None) => costs.why = SPREAD.into(),
            Ok(Some(_)) => {}
        }
        costs.events.push(EventCost { event, cost: cost.ok().flatten() });
    }
    costs
}

fn read(file: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("{FILES}/{file}"))?;
    text.trim().parse().map_err(|_| ErrorKind::InvalidData.into())
}
