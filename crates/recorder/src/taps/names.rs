// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads out of scope that events name, which are logged as the recorder's own events.

use super::{Arrived, Batch, Found, Moment, Tap};
use crate::ledger;
use crate::names::ThreadNames;
use klogger_log::ledger::Entry;
use klogger_log::origin::Origin;
use klogger_ring::block::Builtin;

/// Looks for them.
pub struct Naming {
    threads: ThreadNames,
    builtin: Builtin,
}

impl Naming {
    pub fn new(threads: ThreadNames, builtin: &Builtin) -> Naming {
        Naming { threads, builtin: builtin.clone() }
    }
}

impl Tap for Naming {
    /// Also of one that cannot be written: the ledger counts threads without a name.
    fn block(&mut self, batch: &Batch, _: Arrived) {
        if let Origin::Cpu(_) = batch.block.origin {
            self.threads.see(batch.records(), batch.block.time_base);
        }
    }

    fn turn(&mut self, moment: Moment) -> Found {
        let last = match moment {
            Moment::Message => false,
            Moment::AllCame | Moment::Ended(None) => true,
            Moment::Time | Moment::Ended(Some(_)) => return Found::default(),
        };
        let mut own = Vec::new();
        self.threads.look_up(&self.builtin, last, &mut own);
        Found { own, until: None }
    }

    fn end(&mut self, span: (u64, u64)) -> Vec<Entry> {
        ledger::unnamed(self.threads.unnamed(), span).into_iter().collect()
    }
}
