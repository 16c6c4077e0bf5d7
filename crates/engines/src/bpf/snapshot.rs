// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What exists when a recording begins or ends: reads the iterators of `start` and `end` probes.
//! The kernel runs a probe's program for each object during the read.

use crate::engine::Moment;
use klogger_os::Error;
use klogger_schema::model::{ProbeKind, Target};
use libbpf_rs::{Iter, Link};
use std::io::{ErrorKind, Read};

/// A list that is logged.
pub(super) struct Snapshot {
    moment: Moment,
    label: String,
    links: Vec<Link>,
}

/// When probes of a kind log what exists; `None` of all other kinds.
fn moment(kind: ProbeKind) -> Option<Moment> {
    match kind {
        ProbeKind::Start => Some(Moment::Start),
        ProbeKind::End => Some(Moment::End),
        _ => None,
    }
}

impl Snapshot {
    /// Of the links of a probe, or the links themselves if the probe lists nothing.
    pub(super) fn of(target: &Target, links: Vec<Link>) -> Result<Snapshot, Vec<Link>> {
        match moment(target.kind) {
            Some(moment) => Ok(Snapshot { moment, label: target.label(), links }),
            None => Err(links),
        }
    }

    /// Logs what exists, if this is its moment. `make_room` empties the rings: the program ends a
    /// read with one byte when it needs that.
    pub(super) fn take(&self, moment: Moment, make_room: &mut dyn FnMut()) -> Result<(), Error> {
        if self.moment != moment {
            return Ok(());
        }
        let cannot = |e: &dyn std::fmt::Display| {
            Error::new(format!("cannot read all of '{}': {e}", self.label))
        };
        for link in &self.links {
            let mut list = Iter::new(link).map_err(|e| cannot(&e))?;
            loop {
                match list.read(&mut [0]) {
                    Ok(0) => break,
                    Ok(_) => make_room(),
                    // The kernel lists so many objects at once.
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(e) => return Err(cannot(&e)),
                }
            }
        }
        Ok(())
    }
}
