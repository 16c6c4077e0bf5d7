// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of addresses, which are worked out at the end of a recording.

use klogger_engines::stacks;
use klogger_engines::user_code::UserCode;
use klogger_log::code::{Code, Datum, Variable};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::seen::Seen;
use klogger_log::symbols::Symbols;
use klogger_log::writer::{Sink, Writer};
use klogger_os::machine;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use klogger_symbolize::{Missing, Search, symbolize};
use std::io;

/// Files of which the ledger says why they were refused.
const REFUSED_MAX: usize = 16;

/// The names of kernel addresses, as lines of the log; empty if no event needs them.
#[derive(Default)]
pub struct Names {
    pub stacks: String,
    pub symbols: String,
    /// User stacks, if any were asked for.
    pub code: Option<Code>,
}

impl Names {
    /// The names for the fields of `events` and for `stacks`. If the kernel hides them, the ledger
    /// says so.
    pub fn of(
        events: &[EventLayout],
        stacks: Option<Vec<(u32, Vec<u64>)>>,
        ledger: &mut Ledger,
    ) -> Names {
        let code = events.iter().flat_map(|e| &e.fields).any(|f| f.decode == Decode::Code);
        if !code && stacks.is_none() {
            return Names::default();
        }
        let symbols = machine::symbols();
        if symbols.is_empty() {
            ledger.entries.push(Entry::new(Key::SymbolsHidden));
        }
        Names {
            stacks: stacks::lines(
                &stacks.unwrap_or_default(),
                &Symbols::new(symbols.clone().into_bytes()),
            ),
            symbols: if code { symbols } else { String::new() },
            code: None,
        }
    }

    /// Adds the variables of the kernel at these addresses. If the kernel hides them, the ledger
    /// says so.
    pub fn with_kernel_data(mut self, seen: &Seen, ledger: &mut Ledger) -> Names {
        if seen.of_kernel().next().is_none() {
            return self;
        }
        let variables = machine::Variables::read();
        let hidden = Entry::new(Key::SymbolsHidden);
        if variables.is_hidden() && ledger.entries.iter().all(|e| e.key != hidden.key) {
            ledger.entries.push(hidden);
        }
        let found = seen.of_kernel().filter_map(|address| {
            let (name, offset) = variables.find(address)?;
            let name = Some(Variable { name: name.into(), offset });
            Some(Datum { address, name, ..Datum::default() })
        });
        let found: Vec<Datum> = found.collect();
        self.code.get_or_insert_default().data.extend(found);
        self
    }

    /// Writes them, as far as that is possible.
    pub fn write<S: Sink>(&self, writer: &mut Writer<S>) -> io::Result<()> {
        let stacks = writer.stacks(&self.stacks);
        let code = self.code.as_ref().map_or(Ok(()), |code| writer.code(code));
        let symbols = writer.symbols(&self.symbols);
        stacks.and(code).and(symbols)
    }

    /// Adds user stacks, the names of their code, and those of the data in events; what could not
    /// be kept goes to the ledger.
    pub fn with_code(mut self, mut found: UserCode, data: &Seen, ledger: &mut Ledger) -> Names {
        found.locate(data);
        if data.is_full() {
            let what = "addresses of data: there were too many to look for the names of all";
            ledger.entries.push(Entry::new(Key::CodeUnnamed).detail(what));
        }
        let UserCode { mut code, mapped, unnumbered, lost, forgotten, roots, .. } = found;
        let mut note = |count, what: String| {
            ledger.entries.push(Entry::new(Key::StackUnknown).count(count).detail(&what));
        };
        for (why, count) in unnumbered {
            note(count, format!("{count} user stacks have no number: {why}"));
        }
        let causes = [
            (lost, "were lost, because they came too fast"),
            (forgotten, "were not kept, because programs mapped too much"),
        ];
        for (records, why) in causes.into_iter().filter(|(records, _)| *records > 0) {
            let what = format!("{records} records of what programs mapped {why}");
            ledger.entries.push(Entry::new(Key::CodeUnnamed).detail(&what));
        }
        let search = Search::here(roots, mapped);
        let missing = symbolize(&mut code, &search);
        ledger.entries.extend(unnamed(missing));
        code.keep_used();
        self.code = Some(code);
        self
    }
}

/// Files that were refused, or could not be read. Programs decide how many there are.
fn unnamed(missing: Vec<Missing>) -> Vec<Entry> {
    let refused: Vec<Missing> = missing.into_iter().filter(|file| file.refused).collect();
    let entry = |places: usize, what: String| {
        let s = if places == 1 { "" } else { "s" };
        let detail = format!("{places} place{s} in programs without names: {what}");
        Entry::new(Key::CodeUnnamed).count(places as u64).detail(&detail)
    };
    let (told, others) = refused.split_at(refused.len().min(REFUSED_MAX));
    let of_file = |file: &Missing| {
        let path = file.looked.first().unwrap_or(&file.path);
        entry(file.places, format!("{path}: {}", file.why))
    };
    let more = (!others.is_empty()).then(|| {
        let places = others.iter().map(|file| file.places).sum();
        entry(places, format!("{} more files", others.len()))
    });
    told.iter().map(of_file).chain(more).collect()
}
