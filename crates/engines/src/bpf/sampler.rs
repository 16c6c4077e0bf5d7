// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Timers, samples and breakpoints: a performance event on each CPU, with the probe's program.
//!
//! The events are those of CPUs, not of the recorded threads. So a thread is recorded however it
//! came into scope, creating a thread costs nothing, and the kernel switches no events when it
//! switches threads. A sample of a thread out of scope is dropped by the probe, as any other hit.
//!
//! Because the period is known, so is the number of hits that there should be: what is missing has
//! been skipped by the kernel, and goes into the ledger.

use klogger_os::perf_events::{self, Access, Attributes, Count, Opener};
use klogger_os::{Error, machine, monotonic_ns};
use klogger_schema::attach_points::{self, Breakpoint, Only, Place, Rate, breakpoint, sample};
use klogger_schema::counted::CPU_CLOCK;
use klogger_schema::model::{ProbeKind, Target};
use klogger_schema::nearest::nearest;
use libbpf_rs::{Link, ProgramMut};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

/// How many hits there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// One each time that so many nanoseconds have passed.
    Ns(u64),
    /// One each time that the event has counted so many.
    Count(u64),
    /// The kernel changes the period.
    Unknown,
}

/// What an attach point asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    attributes: Attributes,
    due: Due,
    /// Samples a second, if the kernel limits them.
    hz: Option<u64>,
    is_breakpoint: bool,
}

/// A probe's events.
pub struct Sampler {
    wanted: Wanted,
    cpus: Vec<OnCpu>,
    /// Hits due on CPUs that have gone, and on all when it was stopped.
    before: u64,
    looked_ns: u64,
    counted: u64,
}

struct OnCpu {
    cpu: u32,
    event: OwnedFd,
    _link: Option<Link>,
    since_ns: u64,
}

/// Attaches the program to an event, which is closed when the link is dropped. Tests attach none.
type Attach<'a> = &'a dyn Fn(OwnedFd) -> Result<Option<Link>, Error>;

impl Wanted {
    fn new(attributes: Attributes, due: Due, hz: Option<u64>) -> Wanted {
        Wanted { attributes, due, hz, is_breakpoint: false }
    }

    /// For a timer, a sample or a breakpoint.
    pub fn of(target: &Target) -> Result<Wanted, Error> {
        let unknown = || Error::new(format!("{} is not known", target.label()));
        match target.kind {
            ProbeKind::Timer => {
                let ns = attach_points::period_ns(&target.name).ok_or_else(unknown)?;
                let attributes = Attributes::count(CPU_CLOCK.kind, CPU_CLOCK.config).every(ns);
                Ok(Wanted::new(attributes, Due::Ns(ns), Some(1_000_000_000 / ns)))
            }
            ProbeKind::Sample => {
                let sample = sample(&target.name).ok_or_else(unknown)?;
                let counted = Attributes::count(sample.counted.kind, sample.counted.config);
                let counted = match sample.only {
                    Only::Both => counted,
                    Only::User => counted.without_kernel(),
                    Only::Kernel => counted.without_user(),
                };
                Ok(match sample.rate {
                    Rate::Every(n) if sample.counted.is_clock() => {
                        Wanted::new(counted.every(n), Due::Ns(n), Some(1_000_000_000 / n))
                    }
                    Rate::Every(n) => Wanted::new(counted.every(n), Due::Count(n), None),
                    Rate::Hz(hz) => Wanted::new(counted.at_hz(hz), Due::Unknown, Some(hz)),
                })
            }
            _ => {
                let at = breakpoint(&target.name).ok_or_else(unknown)?;
                let own = Wanted::new(watch(&at)?, Due::Count(1), None);
                Ok(Wanted { is_breakpoint: true, ..own })
            }
        }
    }

    /// The kernel stops an event for the rest of a tick when it has had too many samples.
    fn check_rate(&self) -> Result<(), Error> {
        let Some((hz, most)) = self.hz.zip(perf_events::max_sample_rate()) else { return Ok(()) };
        if hz <= most {
            return Ok(());
        }
        let what = format!("the kernel allows {most} samples a second, and this needs {hz}");
        Err(Error::new(what).help(format!("sysctl kernel.perf_event_max_sample_rate={}", 2 * hz)))
    }
}

fn watch(at: &Breakpoint) -> Result<Attributes, Error> {
    let address = match at.at {
        Place::Address(address) => address,
        Place::Symbol(name) => address_of(name)?,
    };
    if at.access != attach_points::Access::Execute && !address.is_multiple_of(at.length) {
        let what = format!(
            "it is at {address:#x}, and CPUs watch {0} bytes at a multiple of {0}",
            at.length
        );
        return Err(Error::new(what).help("choose a smaller length"));
    }
    let access = match at.access {
        attach_points::Access::Write => Access::Write,
        attach_points::Access::ReadWrite => Access::ReadWrite,
        attach_points::Access::Execute => Access::Execute,
    };
    Ok(Attributes::breakpoint(address, at.length, access))
}

/// The address of a function or a variable of the kernel.
fn address_of(name: &str) -> Result<u64, Error> {
    let text = machine::all_symbols();
    let symbols = || machine::symbols_in(&text);
    let mut found: Vec<u64> = symbols().filter(|(_, n)| *n == name).map(|(at, _)| at).collect();
    found.dedup();
    match found[..] {
        [0] => Err(Error::new("the kernel hides the addresses of its symbols")
            .help("record as root, after 'sysctl kernel.kptr_restrict=1'")),
        [address] => Ok(address),
        [] => {
            let near = nearest(name, symbols().map(|(_, name)| name));
            let near = match near.is_empty() {
                true => String::new(),
                false => format!("did you mean {}? ", near.join(", ")),
            };
            Err(Error::new(format!("this kernel has no symbol '{name}'")).help(format!(
                "{near}/proc/kallsyms has those that can be named: variables only if the kernel \
                 was built with CONFIG_KALLSYMS_ALL; otherwise write the address"
            )))
        }
        _ => {
            let what = format!("{} symbols of this kernel have the name '{name}'", found.len());
            Err(Error::new(what).help("write the address that is meant, from /proc/kallsyms"))
        }
    }
}

impl Sampler {
    /// On all CPUs that are online.
    pub fn new(wanted: Wanted, program: &ProgramMut) -> Result<Sampler, Error> {
        wanted.check_rate()?;
        let cpus = machine::online_cpus()?;
        let mut sampler = Sampler::none(wanted);
        sampler.come(&cpus, &perf_events::Kernel, &|event| attach(program, event))?;
        Ok(sampler)
    }

    fn none(wanted: Wanted) -> Sampler {
        Sampler { wanted, cpus: Vec::new(), before: 0, looked_ns: monotonic_ns(), counted: 0 }
    }

    /// Looks for CPUs that came online or went. One that cannot be had is tried again next time.
    pub fn look(&mut self, program: &ProgramMut) {
        let Ok(online) = machine::online_cpus() else { return };
        self.go(&online);
        let _ = self.come(&online, &perf_events::Kernel, &|event| attach(program, event));
        self.looked_ns = monotonic_ns();
    }

    fn come(&mut self, online: &[u32], opener: &dyn Opener, attach: Attach) -> Result<(), Error> {
        for &cpu in online {
            if self.cpus.iter().any(|own| own.cpu == cpu) {
                continue;
            }
            let event = opener.open(&self.wanted.attributes, cpu);
            let event = event.map_err(|e| explain(&e, self.wanted.is_breakpoint))?;
            let own = event.try_clone().map_err(|e| Error::new(e.to_string()))?;
            let _link = attach(event)?;
            self.cpus.push(OnCpu { cpu, event: own, _link, since_ns: monotonic_ns() });
        }
        Ok(())
    }

    /// The kernel has removed the events of CPUs that went offline.
    fn go(&mut self, online: &[u32]) {
        let (stay, gone) = std::mem::take(&mut self.cpus)
            .into_iter()
            .partition::<Vec<_>, _>(|own| online.contains(&own.cpu));
        self.cpus = stay;
        self.before += gone.iter().map(|own| self.wanted.due.of(own, self.looked_ns)).sum::<u64>();
    }

    /// How many hits there should have been by now. To `ask` for counts interrupts each CPU.
    pub fn due(&mut self, ask: bool) -> u64 {
        if ask || matches!(self.wanted.due, Due::Ns(_)) {
            let now = monotonic_ns();
            self.counted = self.cpus.iter().map(|own| self.wanted.due.of(own, now)).sum();
        }
        self.before + self.counted
    }

    /// No further hits. The number of those that are due does not change any more.
    pub fn stop(&mut self) {
        for own in &self.cpus {
            let _ = perf_events::disable(own.event.as_fd());
        }
        self.before = self.due(true);
        self.counted = 0;
        self.cpus.clear();
    }
}

impl Due {
    /// On one CPU, until `now`.
    fn of(self, own: &OnCpu, now: u64) -> u64 {
        match self {
            // By half a period less: the last hit may be late.
            Due::Ns(period) => now.saturating_sub(own.since_ns).saturating_sub(period / 2) / period,
            Due::Count(period) => Count::read(own.event.as_fd()).map_or(0, Count::scaled) / period,
            Due::Unknown => 0,
        }
    }
}

fn attach(program: &ProgramMut, event: OwnedFd) -> Result<Option<Link>, Error> {
    let link = program.attach_perf_event(event.as_raw_fd());
    let link = link.map_err(|e| Error::new(e.to_string()))?;
    // The link closes it.
    let _ = event.into_raw_fd();
    Ok(Some(link))
}

/// Why the kernel refuses an event, and the remedy.
fn explain(error: &io::Error, is_breakpoint: bool) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) if is_breakpoint => Error::new("the CPU or the kernel cannot watch it")
            .help(
                "'x' at a function of the kernel needs a kernel with kprobes, and a place where \
                 kprobes are allowed; 'x' in programs, 'w' and 'rw' do not",
            ),
        Some(libc::ENOSPC) => Error::new("all debug registers of a CPU are in use").help(
            "x86 has four, for all tools together: use fewer breakpoints, or end the debugger that \
             has them",
        ),
        Some(libc::EMFILE) => Error::new("too many open files").help("raise the limit: ulimit -n"),
        Some(libc::EACCES | libc::EPERM) => Error::new("the kernel does not allow it")
            .help("record as root; 'sysctl kernel.perf_event_paranoid' must be 2 or less"),
        _ if perf_events::is_unknown(error) => Error::new(error.to_string())
            .help("this machine cannot do it; name an alternative with 'or'"),
        _ => Error::new(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
