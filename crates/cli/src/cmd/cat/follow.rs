// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Follows a log that comes in, and prints its events in the order of time.
//!
//! The log says how far it is complete, if its recorder knows that somebody follows it. Until then
//! an event waits for those that may still come before it: rings are drained once a second.

use super::Outcome;
use super::clock::Clock;
use super::input::{Came, Input};
use super::printer::Printer;
use crate::failure::Failure;
use crate::messages;
use crate::text::open;
use klogger_log::arriving::{Arriving, Piece};
use klogger_log::ledger::Key;
use klogger_log::live::LiveMerge;
use klogger_log::preamble::Preamble;
use klogger_log::symbols::Symbols;
use klogger_os::machine;
use klogger_os::threads;
use klogger_recorder::host;
use klogger_recorder::socket::{FOLLOWED, Request, runs, send_within};
use signal_hook::consts::SIGINT;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long an event waits for others, if the log does not say how far it is complete; and if it
/// does, but has not for a while.
const HOLD_NS: u64 = 2_000_000_000;
const HOLD_FOLLOWED_NS: u64 = 10_000_000_000;
/// Bytes of records that are taken in before events are printed.
const BATCH: usize = 8 << 20;
/// How long the recorder may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// When it is asked again, if it has not answered.
const SOON: Duration = Duration::from_millis(100);
/// How long a pipe may go on after Ctrl-C before that is said.
const GOES_ON: Duration = Duration::from_secs(1);

pub struct Follow<'a> {
    input: Input,
    log: Arriving,
    merge: Option<LiveMerge<()>>,
    clock: Clock,
    printer: Printer<'a>,
    /// Bytes of records since events were printed last.
    taken: usize,
    /// According to the ledgers that have come.
    lost: u64,
    /// A ledger has not come.
    unaccounted: bool,
    /// Ctrl-C, if the input is a pipe.
    interrupted: Arc<AtomicBool>,
}

impl<'a> Follow<'a> {
    pub fn new(input: Input, printer: Printer<'a>) -> Follow<'a> {
        Follow {
            input,
            log: Arriving::new(),
            merge: None,
            clock: Clock::new(),
            printer,
            taken: 0,
            lost: 0,
            unaccounted: false,
            interrupted: Arc::default(),
        }
    }

    pub fn run(mut self) -> Outcome {
        if !self.input.is_file() {
            read_on_when_interrupted(&self.interrupted)?;
        }
        let mut said = Interruption::default();
        loop {
            let log = &mut self.log;
            let came = self.input.read(&mut |bytes| log.push(bytes));
            let came = came.map_err(|e| Failure::new(format!("{}: {e}", self.input.name())))?;
            if came == Came::Bytes {
                self.clock.came(Instant::now());
            }
            self.take()?;
            if came != Came::Bytes || self.printer.is_full() {
                self.release()?;
                self.printer.flush()?;
            }
            said.look(&self.interrupted);
            match came {
                _ if self.printer.is_over() => break,
                Came::End(why) if !self.go_on(why)? => break,
                _ if self.log.is_complete() && !self.go_on(Key::FileCut)? => break,
                Came::End(_) | Came::Bytes | Came::Nothing => {}
            }
        }
        self.end()
    }

    /// Ends this log, and goes on with the next segment of its recording; false if there is none.
    fn go_on(&mut self, why: Key) -> Result<bool, Failure> {
        self.log.finish(why).map_err(|e| failure(&self.input.name(), &e))?;
        self.lost += self.log.ledger().map_or(0, open::lost);
        self.unaccounted |= self.log.ledger().is_none();
        let pid = self.log.preamble().map_or(0, |preamble| preamble.recorder.pid);
        let runs = || runs(pid, PATIENCE);
        let goes_on = self.input.go_on(&runs)?;
        if goes_on {
            self.log.restart();
        }
        Ok(goes_on)
    }

    /// Takes in what has come.
    fn take(&mut self) -> Result<(), Failure> {
        loop {
            let name = || self.input.name();
            let piece = self.log.next_piece().map_err(|e| failure(&name(), &e))?;
            let Some(piece) = piece else { return self.release() };
            match piece {
                Piece::Begin => self.begin()?,
                Piece::Addition(addition) => {
                    if let (Some(merge), Some(preamble)) = (&mut self.merge, self.log.preamble()) {
                        merge.add(&addition.events);
                        self.printer.learn(preamble)?;
                    }
                }
                Piece::Progress(until_ns) => {
                    if let Some(merge) = &mut self.merge {
                        merge.hold(HOLD_FOLLOWED_NS);
                        merge.until((), until_ns);
                    }
                }
                Piece::Events { origin, time_base, last_time, first_serial, records } => {
                    self.clock.saw(last_time);
                    let Some(merge) = &mut self.merge else { continue };
                    let read = merge.block(origin, time_base, first_serial, &records, &mut |_| {});
                    if read < records.len() {
                        self.log.note_malformed(origin, read);
                    }
                    self.taken += records.len();
                    if self.taken >= BATCH {
                        self.release()?;
                    }
                }
                Piece::End => {}
            }
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let Some(preamble) = self.log.preamble() else { return Ok(()) };
        if preamble.recorder.overwrite {
            let what = "the events of a flight recorder do not come in the order of time";
            return Err(Failure::new(format!("{}: {what}", self.input.name()))
                .help("write the log to a file, and read that"));
        }
        if self.input.is_file() {
            hurry(preamble.recorder.pid);
        }
        let symbols = || match is_of_this_boot(preamble) {
            true => Symbols::new(machine::symbols().into_bytes()),
            false => Symbols::default(),
        };
        self.printer.begin(preamble, preamble.clock.start_ns, symbols)?;
        let mut merge = LiveMerge::new(&preamble.events);
        merge.hold(HOLD_NS);
        self.merge = Some(merge);
        Ok(())
    }

    /// Prints the events that need not wait any longer.
    fn release(&mut self) -> Result<(), Failure> {
        self.taken = 0;
        let Follow { merge: Some(merge), printer, clock, .. } = self else { return Ok(()) };
        merge.release(clock.now(Instant::now()), &mut |event, late| printer.event(event, late));
        if printer.is_full() { printer.flush() } else { Ok(()) }
    }

    fn end(mut self) -> Outcome {
        if let Some(merge) = &mut self.merge {
            let printer = &mut self.printer;
            merge.finish(&mut |event, late| printer.event(event, late));
        }
        self.printer.end()?;
        self.warn();
        let interrupted = self.interrupted.load(Ordering::Relaxed);
        Ok(if interrupted { ExitCode::from(128 + SIGINT as u8) } else { ExitCode::SUCCESS })
    }

    /// Prints what is missing from the log.
    fn warn(&self) {
        let late = self.printer.late();
        if late > 0 {
            messages::note(&format!(
                "{late} events came too late: they are printed after later ones"
            ));
        }
        open::warn_of_damage(self.log.damage());
        let lost = if self.unaccounted { self.lost.max(self.log.lost()) } else { self.lost };
        open::warn_of_losses(lost);
    }
}

fn failure(name: &str, error: &klogger_log::error::Error) -> Failure {
    Failure::new(format!("{name}: {error}")).help(error.remedy())
}

/// Ctrl-C on a terminal reaches the recorder at the other end of a pipe as well: the rest of the
/// log, which it writes then, is printed too. A second one ends this program.
fn read_on_when_interrupted(interrupted: &Arc<AtomicBool>) -> Result<(), Failure> {
    let code = 128 + SIGINT;
    signal_hook::flag::register_conditional_shutdown(SIGINT, code, interrupted.clone())
        .and_then(|_| signal_hook::flag::register(SIGINT, interrupted.clone()))
        .map(drop)
        .map_err(|e| Failure::new(format!("cannot handle SIGINT: {e}")))
}

/// Says that the input goes on after Ctrl-C.
#[derive(Default)]
struct Interruption {
    since: Option<Instant>,
    said: bool,
}

impl Interruption {
    fn look(&mut self, interrupted: &AtomicBool) {
        if self.said || !interrupted.load(Ordering::Relaxed) {
            return;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > GOES_ON {
            self.said = true;
            messages::note("standard input has not ended yet; Ctrl-C again ends this at once");
        }
    }
}

/// Asks the recorder again and again for events that come soon. It may not have begun to answer,
/// and ends with its recording.
fn hurry(pid: u32) {
    let ask = move || {
        let begun = Instant::now();
        let mut said = false;
        loop {
            let asked = send_within(pid, &Request::Follow, PATIENCE);
            said |= asked.is_ok();
            if let Err(e) = asked
                && !said
                && begun.elapsed() > PATIENCE
            {
                said = true;
                let seconds = HOLD_NS / 1_000_000_000;
                messages::note(&format!("events may come up to {seconds} s late: {}", e.message));
            }
            thread::sleep(if said { FOLLOWED / 3 } else { SOON });
        }
    };
    // Without it, events come later.
    threads::try_start("klogger/ask", ask);
}

/// Whether a log is of this machine, and since it was started: then the kernel's symbols are the
/// same. The wall clock may have been set a little in between.
fn is_of_this_boot(preamble: &Preamble) -> bool {
    const TOLERANCE_NS: u64 = 1_000_000_000;
    let Ok(here) = host::host() else { return false };
    let there = &preamble.host;
    let booted =
        |clock: &klogger_log::preamble::Clock| clock.start_realtime_ns.wrapping_sub(clock.start_ns);
    (&here.name, &here.kernel_version) == (&there.name, &there.kernel_version)
        && booted(&host::clock()).abs_diff(booted(&preamble.clock)) < TOLERANCE_NS
}
