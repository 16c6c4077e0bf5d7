// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Measures how fast a log is read and merged: `merge LOG`.

use klogger_log::merge::Selection;
use klogger_log::reader::Reader;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: merge LOG")?;
    let reader = Reader::open(path)?;
    let start = Instant::now();
    let mut merge = reader.merge(&Selection::default());
    let (mut events, mut last, mut backwards) = (0u64, 0, 0u64);
    while let Some(event) = merge.next() {
        events += 1;
        backwards += u64::from(event.time_ns < last);
        last = event.time_ns;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{events} events in {seconds:.3} s, {:.1} M events/s; {backwards} out of order",
        events as f64 / seconds / 1e6
    );
    Ok(())
}
