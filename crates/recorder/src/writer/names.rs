// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of addresses, which are worked out at the end of a recording.

use klogger_engines::stacks;
use klogger_engines::user_code::UserCode;
use klogger_log::code::{Code, Datum, Place, Variable};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::seen::Seen;
use klogger_log::symbols::Symbols;
use klogger_log::writer::{Sink, Writer};
use klogger_os::machine;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use klogger_symbolize::{Missing, Search, Tell, symbolize};
use std::io;

/// Files of which the ledger says why they were not read.
const UNREAD_MAX: usize = 16;

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
    /// be kept goes to the ledger. `tell`: hears of servers that are waited for.
    pub fn with_code(
        mut self,
        mut found: UserCode,
        data: &Seen,
        ledger: &mut Ledger,
        tell: Option<Tell>,
    ) -> Names {
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
        let search = Search::here(roots, mapped, tell);
        let missing = symbolize(&mut code, &search);
        ledger.entries.extend(unnamed(missing, &code));
        ledger.entries.extend(unplaced(&code));
        code.keep_used();
        self.code = Some(code);
        self
    }
}

/// Files that were not read, whatever the reason. Programs decide how many there are.
fn unnamed(missing: Vec<Missing>, code: &Code) -> Vec<Entry> {
    let shown = klogger_symbolize::nameless(code);
    let places = |file: &Missing| match (file.refused, file.unread) {
        (true, _) => file.places,
        (false, true) => shown.get(&file.file).copied().unwrap_or(0),
        (false, false) => 0,
    };
    let unread = missing.iter().map(|file| (file, places(file))).filter(|(_, places)| *places > 0);
    let unread: Vec<(&Missing, usize)> = unread.collect();
    let (told, others) = unread.split_at(unread.len().min(UNREAD_MAX));
    let of_file = |(file, places): &(&Missing, usize)| {
        let path = file.looked.first().unwrap_or(&file.path);
        nameless(*places, &format!("{path}: {}", file.why))
    };
    let more = (!others.is_empty()).then(|| {
        let places = others.iter().map(|(_, places)| places).sum();
        nameless(places, &format!("{} more files", others.len()))
    });
    told.iter().map(of_file).chain(more).collect()
}

/// Stacks whose program was somewhere, and nothing is known of what it had mapped there. Further
/// out, a frame may be what was wrongly taken for one.
fn unplaced(code: &Code) -> Option<Entry> {
    let innermost = code.stacks.iter().filter_map(|stack| stack.frames.first());
    let places = innermost.filter(|place| matches!(place, Place::Address(_))).count();
    (places > 0).then(|| nameless(places, "it is not known of which file they are"))
}

fn nameless(places: usize, what: &str) -> Entry {
    let s = if places == 1 { "" } else { "s" };
    let detail = format!("{places} place{s} in programs without names: {what}");
    Entry::new(Key::CodeUnnamed).count(places as u64).detail(&detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(file: u32, path: &str, refused: bool, unread: bool) -> Missing {
        let (path, why) = (path.to_string(), "why".into());
        let (build_id, looked) = Default::default();
        Missing { file, path, build_id, why, looked, places: 7, refused, unread }
    }

    #[test]
    fn each_place_of_a_file_that_was_not_read_is_told() {
        let code = Code::new(
            b"f 0 - - /gone\nf 1 - - /read\nf 2 - - /refused\nf 3 - - /words\nf 4 - - /gone\n\
              s 65537 9 - 0+10 0+20 1+30 2+5 4+60\nc 65537 8 3+44\ns 65538 9 - 7f00 0+10 7f08\n\
              s 65539 9 - 0+30\nn 0+30 4\tf\t\n",
        );
        let lost = [(0, "/gone", false), (2, "/refused", true), (3, "/words", false)];
        let mut all: Vec<Missing> = lost.map(|(n, path, is)| missing(n, path, is, true)).into();
        all.push(missing(1, "/read", false, false));
        let told = unnamed(all, &code).into_iter().chain(unplaced(&code));
        let counts: Vec<(u64, bool)> =
            told.map(|entry| (entry.count, entry.text.contains("/gone: why"))).collect();
        assert_eq!(counts, [(2, true), (7, false), (1, false)]);
    }
}
