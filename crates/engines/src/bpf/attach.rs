// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How a program is attached: one row for each kind of attach point.
//! `crates/codegen/src/bpf/attach_points.rs` has the same rows for the text of programs.

mod uprobe;

pub use uprobe::InPrograms;

use super::placed::Numbered;
use super::sampler::{Sampler, Wanted};
use klogger_os::Error;
use klogger_os::perf_events;
use klogger_schema::model::{ProbeKind, Target};
use libbpf_rs::{
    Link, Object, OpenProgramMut, PerfEventOpts, ProgramAttachType, ProgramMut, ProgramType,
};
use std::os::fd::{AsRawFd, IntoRawFd};

/// What keeps a program attached, until it is dropped.
pub struct Attachment {
    pub links: Vec<Link>,
    /// Of a timer, a sample or a breakpoint.
    pub sampler: Option<Sampler>,
}

impl From<Vec<Link>> for Attachment {
    fn from(links: Vec<Link>) -> Attachment {
        Attachment { links, sampler: None }
    }
}

/// Errors are the kernel's, or libbpf's.
type Attached = Result<Attachment, Box<dyn std::error::Error>>;

/// Where a program is attached.
pub struct Site<'a> {
    /// Its object, with its maps.
    pub object: &'a Object,
    pub target: &'a Target,
    /// `None` if the target is not in a program.
    pub programs: Option<&'a InPrograms>,
    /// The places of the target that have numbers; the program gets the number with a hit.
    pub places: Vec<&'a Numbered>,
}

impl<'a> Site<'a> {
    /// Of a target with one place, which is not in a program.
    pub fn new(object: &'a Object, target: &'a Target) -> Site<'a> {
        Site { object, target, programs: None, places: Vec::new() }
    }

    /// The number of a place of the target, in the upper half of a link's cookie; 0: it has none.
    fn cookie(&self, place: &str) -> u64 {
        let number = self.places.iter().find(|p| p.target.name == place).map(|p| p.number);
        u64::from(number.unwrap_or(0)) << 32
    }
}

struct Row {
    kind: ProbeKind,
    /// A place that is several, such as a timer on each CPU, has a link for each.
    attach: fn(&ProgramMut, &Site) -> Attached,
    /// What the user can do if the kernel refuses.
    help: &'static str,
    /// The kernel tracks by program which hits it must skip, so that copies can log them.
    copies: bool,
    /// Why the kernel skips a hit.
    skipped: &'static str,
}

/// The kernel allows so many programs at a place.
const OTHERS: &str =
    "if other tracers are running, they may have used up what the kernel allows on one tracepoint";

/// The same for a place in a program.
const IN_PROGRAM: &str =
    "the kernel may have no uprobes (CONFIG_UPROBE_EVENTS), or none on this file system";

/// The kind of a system call's probe, whose program is reached from one of the tracepoint that all
/// calls pass: see [`super::calls`].
const fn of_calls(kind: ProbeKind) -> Row {
    Row {
        kind,
        attach: |_, site| Err(format!("{} is not attached by itself", site.target.label()).into()),
        help: OTHERS,
        copies: false,
        skipped: "it hit itself",
    }
}

/// For a kind whose programs run on performance events.
const SAMPLED: Row = Row {
    kind: ProbeKind::Timer,
    attach: |program, site| {
        let sampler = Some(Sampler::new(Wanted::of(site.target)?, program)?);
        Ok(Attachment { links: Vec::new(), sampler })
    },
    help: "'klogger show' prints what can be attached on this machine",
    copies: false,
    // The ledger has a key for these.
    skipped: "",
};

static ROWS: [Row; 14] = [
    of_calls(ProbeKind::Syscall),
    of_calls(ProbeKind::ReturnSyscall),
    SAMPLED,
    Row { kind: ProbeKind::Sample, ..SAMPLED },
    Row { kind: ProbeKind::Breakpoint, ..SAMPLED },
    Row {
        kind: ProbeKind::Tracepoint,
        // The section of the program names the attach point.
        attach: |program, _| Ok(vec![program.attach_trace()?].into()),
        help: OTHERS,
        copies: true,
        skipped: "it hit itself",
    },
    Row {
        kind: ProbeKind::TraceEvent,
        // Not by libbpf, which needs a tracefs that is mounted.
        attach: trace_events,
        help: OTHERS,
        // The kernel runs one such program at a time on a CPU.
        copies: false,
        skipped: "an interrupt hit it in another program for trace events",
    },
    uprobe_row(ProbeKind::User),
    uprobe_row(ProbeKind::ReturnUser),
    uprobe_row(ProbeKind::Usdt),
    Row {
        kind: ProbeKind::Function,
        attach: |program, site| function(program, site.target, false),
        help: FUNCTIONS,
        // It runs with preemption on only until it disables it.
        copies: false,
        skipped: NESTED,
    },
    Row {
        kind: ProbeKind::Return,
        attach: |program, site| function(program, site.target, true),
        help: FUNCTIONS,
        copies: false,
        skipped: NESTED,
    },
    LISTED,
    Row { kind: ProbeKind::End, ..LISTED },
];

fn trace_events(program: &ProgramMut, site: &Site) -> Attached {
    let one = |name: &str| -> Result<Link, Box<dyn std::error::Error>> {
        let event = perf_events::trace_event(name)?;
        let options = PerfEventOpts { cookie: site.cookie(name), ..PerfEventOpts::default() };
        let link = program.attach_perf_event_with_opts(event.as_raw_fd(), options)?;
        // The link closes it.
        let _ = event.into_raw_fd();
        Ok(link)
    };
    let names = site.places.iter().map(|place| place.target.name.as_str());
    let alone = site.places.is_empty().then_some(site.target.name.as_str());
    Ok(names.chain(alone).map(one).collect::<Result<Vec<Link>, _>>()?.into())
}

/// The kernel refuses some functions that it lists.
const FUNCTIONS: &str =
    "the kernel refuses a probe in this function, or other tracers use it: choose another function";
const NESTED: &str = "it hit itself, or a thread that was preempted in it";

/// By the program's type: fentry, or a kprobe.
fn function(program: &ProgramMut, target: &Target, at_return: bool) -> Attached {
    Ok(vec![match program.prog_type() {
        ProgramType::Kprobe => program.attach_kprobe(at_return, &target.name)?,
        _ => program.attach_trace()?,
    }]
    .into())
}

/// What the kernel lists: see snapshot.rs. Nothing runs until the recorder reads the list.
const LISTED: Row = Row {
    kind: ProbeKind::Start,
    attach: |program, _| Ok(vec![program.attach()?].into()),
    help: "this kernel has the list in its type information, but does not give it to programs",
    copies: false,
    skipped: "it hit itself",
};

const fn uprobe_row(kind: ProbeKind) -> Row {
    Row {
        kind,
        attach: |program, site| Ok(uprobe::attach(program, site)?.into()),
        help: IN_PROGRAM,
        // The kernel skips no hits of such programs.
        copies: false,
        skipped: "",
    }
}

fn row(kind: ProbeKind) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.kind == kind)
}

/// Whether a copy of a program logs the hits that the kernel skipped for the first one.
pub fn copies(kind: ProbeKind) -> bool {
    row(kind).is_some_and(|row| row.copies)
}

/// What the user can do if the kernel refuses to attach such a probe.
pub fn help(kind: ProbeKind) -> &'static str {
    row(kind).map_or("", |row| row.help)
}

/// Why the kernel skips hits of a program, unless threads are preempted in it.
pub fn skipped(kind: ProbeKind) -> &'static str {
    row(kind).map_or("", |row| row.skipped)
}

/// Before the program of a target is loaded. `uprobe_multi`: the kernel has links of many places.
pub fn prepare(program: &mut OpenProgramMut, kind: ProbeKind, uprobe_multi: bool) {
    match kind {
        ProbeKind::User | ProbeKind::ReturnUser | ProbeKind::Usdt if uprobe_multi => {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
        _ => {}
    }
}

/// Attaches the program `name` of a loaded object. It is detached when the result is dropped.
///
/// # Errors
///
/// If the object has no such program, this engine has no such attach points, or the kernel refuses.
pub fn attach(name: &str, site: &Site) -> Result<Attachment, Error> {
    let (object, target) = (site.object, site.target);
    let label = target.label();
    let row = row(target.kind)
        .ok_or_else(|| Error::new(format!("the bpf engine cannot attach to {label}")))?;
    let program = object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| Error::new(format!("the compiled schema has no program '{name}'")))?;
    (row.attach)(&program, site).map_err(|e| {
        let message = format!("cannot attach to {label}: {e}");
        match e.downcast::<Error>() {
            // One of our own has its own remedy.
            Ok(own) => Error { message, ..*own },
            Err(_) => Error::new(message).help(row.help),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_codegen::bpf::attach_points;

    #[test]
    fn every_generated_kind_can_be_attached() {
        for kind in ProbeKind::ALL {
            let attaches = ROWS.iter().filter(|row| row.kind == kind).count();
            assert_eq!(attaches, usize::from(attach_points::of(kind).is_some()), "{kind:?}");
        }
    }
}
