// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger record`

use super::Outcome;
use super::build::build;
use crate::failure::Failure;
use crate::schemata;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use klogger_engines::kernel;
use klogger_log::ledger::Ledger;
use klogger_log::text::escaped_lines;
use klogger_log::writer::Compression;
use klogger_os::machine;
use klogger_recorder::{
    self, BUFFER_MAX, BUFFER_MIN, Engine, Options, Progress, RateLimit, Target, USER_BUFFER_MAX,
    USER_BUFFER_MIN,
};
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::{bundled, host_kernel, kbuild};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  klogger record -s scheduler -- make -j4            the command and everything it starts
  klogger record -s scheduler -p 4711 --for 30s      a process that runs already
  klogger record -s scheduler -a --for 10s -o all.klog
  klogger record -s ./my.klogger -- ./prog           a schema of your own
  klogger record --engine user -- ./prog             what the program itself logs; needs no root
  klogger record -s scheduler --engine kernel -- ./prog
                                                     by kernel modules, built if need be
  klogger record -s scheduler -s programs -- ./prog  both the kernel's events and the program's
  klogger record -s scheduler --overwrite -- ./prog  keep the newest; dump at the end, or at
                                                     each SIGUSR1 to klogger
Then:
  klogger report scheduler.klog      the answers
  klogger cat scheduler.klog         the events

The command's own exit code is passed on. Ctrl-C ends the command and the recording.";

/// Record events of a command, of processes, or of the whole system
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Schema to record with: a bundled one's name or a file; may be given several times. One
    /// without probes is recorded from programs; 'programs' is whatever programs log
    #[arg(short, long = "schema", required_unless_present = "engine", value_name = "SCHEMA")]
    schemas: Vec<String>,
    /// What logs: probes in the kernel (as programs of its own virtual machine: bpf; as modules:
    /// kernel), programs that include a generated header (user), or, by what the schemata have, bpf
    /// or user or both (auto)
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// For --engine kernel: take modules from this folder ('klogger build -o DIR' makes it) instead
    /// of building them
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// The log [default: the first schema's name with .klog]. One that exists becomes FILE.old
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Who may read and write the log, as for chmod: a log tells what others do
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    mode: u32,
    /// Record all processes
    #[arg(short, long, conflicts_with = "pids")]
    all: bool,
    /// Record these processes, and those that they start
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',')]
    pids: Vec<u32>,
    /// End after this time: 500ms, 30s, 5m, 1h. A command that still runs is asked to end (SIGTERM)
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Ring of each CPU: 64K, 4M, ...; rounded up to a power of two [default: 4M, and larger for a
    /// CPU that needs it]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    buffer_size: Option<u64>,
    /// Ring of each thread of a program: 64K, 4M, ...; rounded up to a power of two
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = user_size)]
    user_buffer: u64,
    /// Memory for the rings of all CPUs together, which grow until then where events come too fast
    /// for them [default: a sixteenth of what is free, at most 1G; with --buffer-size they do not
    /// grow], and for those of all programs together [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_memory: Option<u64>,
    /// Empty a ring before less than this share of it is free, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=90))]
    lowwater: u32,
    /// Flight recorder: never stop for a full ring, but keep the newest events
    #[arg(long)]
    overwrite: bool,
    /// Compress the log (zstd)
    #[arg(long)]
    compress: bool,
    /// Log no more than N of this event in a second, on all CPUs together (N/s, also 10K/s, 1M/s),
    /// and count the others; '*' and '?' in EVENT stand for any letters, and for one. May be given
    /// several times
    #[arg(long, value_name = "EVENT=N/s", value_parser = rate)]
    rate_limit: Vec<RateLimit>,
    /// Do not log these events until 'klogger enable' says so
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    disable: Vec<String>,
    /// Do not measure what events cost, which takes some hundredths of a second before the
    /// recording
    #[arg(long)]
    no_calibrate: bool,
    /// No progress, no summary
    #[arg(short, long)]
    quiet: bool,
    /// The command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `--engine`
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    Auto,
    Bpf,
    Kernel,
    User,
}

/// `--buffer-size`, and the memory for rings of programs, if they are not given.
const BUFFER_DEFAULT: u64 = 4 << 20;
const USER_MEMORY_DEFAULT: u64 = 256 << 20;
/// Rings of CPUs take no more than this together, unless they are told to.
const RING_MEMORY_MAX: u64 = 1 << 30;

/// Memory for rings of CPUs: who gives their size alone means it.
fn ring_memory(buffer_size: Option<u64>, max_memory: Option<u64>) -> u64 {
    match (max_memory, buffer_size) {
        (Some(most), _) => most,
        (None, Some(_)) => 0,
        (None, None) => (machine::memory_available().unwrap_or(0) / 16).min(RING_MEMORY_MAX),
    }
}

/// Stands for the schemata of all programs.
const PROGRAMS: &str = "programs";

pub fn run(args: Args) -> Outcome {
    let target = target(&args)?;
    let engine = match args.engine {
        Some(EngineName::Bpf) => Engine::Bpf,
        Some(EngineName::Kernel) => Engine::Kernel,
        Some(EngineName::User) => Engine::User,
        Some(EngineName::Auto) | None => Engine::Auto,
    };
    let (units, programs) = schemas(&args.schemas, engine)?;
    let (resident, modules) = match engine {
        Engine::Kernel => modules(&units, args.modules.as_deref())?,
        Engine::Auto | Engine::Bpf | Engine::User if args.modules.is_some() => {
            return Err(
                Failure::new("--modules is for the kernel engine").help("add --engine kernel")
            );
        }
        Engine::Auto | Engine::Bpf | Engine::User => (Vec::new(), None),
    };
    let name = units.first().map_or(PROGRAMS, |unit| unit.schema.name.as_str());
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.klog")));
    let options = Options {
        engine,
        units,
        resident,
        modules,
        programs,
        target,
        output: output.clone(),
        mode: args.mode,
        buffer_size: args.buffer_size.unwrap_or(BUFFER_DEFAULT),
        user_buffer: args.user_buffer,
        max_memory: args.max_memory.unwrap_or(USER_MEMORY_DEFAULT),
        ring_memory: ring_memory(args.buffer_size, args.max_memory),
        lowwater: args.lowwater,
        overwrite: args.overwrite,
        compression: if args.compress { Compression::Zstd(1) } else { Compression::None },
        duration: args.duration,
        calibrate: !args.no_calibrate,
        limits: args.rate_limit.clone(),
        disabled: args.disable.clone(),
        command_line: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
    };
    let bar = progress_bar(args.quiet);
    let outcome = klogger_recorder::record(options, &mut |p| {
        // No thread of indicatif's own: it would be there before signals are blocked, and take
        // them.
        if let Some(note) = &p.note {
            bar.suspend(|| eprintln!("klogger: {note}"));
        }
        bar.set_message(progress_text(p));
        bar.tick();
    })?;
    bar.finish_and_clear();
    if !args.quiet {
        eprint!("{}", escaped_lines(&summary(&outcome, &output)));
    }
    if let Some(e) = &outcome.write_error {
        return Err(Failure::new(format!("{} is not complete: {e}", output.display())).help(
            "everything up to there can be read; make space on the disk, or record with --compress",
        ));
    }
    Ok(match (outcome.status, outcome.interrupted, args.duration) {
        // It was we who ended the command, as asked.
        (Some(_), None, Some(limit)) if outcome.elapsed >= limit => ExitCode::SUCCESS,
        (Some(status), _, _) => ExitCode::from(klogger_recorder::exit_code(status)),
        (None, _, _) => ExitCode::SUCCESS,
    })
}

/// The schemata that were named, and whether those of all programs are meant as well.
fn schemas(words: &[String], engine: Engine) -> Result<(Vec<CompiledSchema>, bool), Failure> {
    let programs =
        words.iter().any(|w| w == PROGRAMS) || (words.is_empty() && engine == Engine::User);
    match (engine, programs, words.is_empty()) {
        (Engine::Bpf, true, _) => {
            return Err(Failure::new(
                "-s programs needs the user engine, and --engine bpf leaves it out",
            )
            .help("leave --engine away: the kernel's probes and programs are recorded together"));
        }
        (Engine::Bpf | Engine::Kernel | Engine::Auto, false, true) => {
            return Err(Failure::new("no schema to record with")
                .help("give one with -s ('klogger list' shows those there are), or record programs: --engine user"));
        }
        _ => {}
    }
    let named = words.iter().filter(|w| *w != PROGRAMS);
    let units: Result<Vec<_>, Failure> =
        named.map(|s| schemata::unit(s, matches!(engine, Engine::Auto | Engine::Bpf))).collect();
    Ok((units?, programs))
}

/// Which schemata the kernel has already, and where the modules of the others are. Builds them, if
/// need be.
fn modules(
    units: &[CompiledSchema],
    folder: Option<&Path>,
) -> Result<(Vec<String>, Option<PathBuf>), Failure> {
    host_kernel::check_module_privilege()?;
    let builtin = bundled::builtin()?.schema;
    let schemas: Vec<&Schema> = units.iter().map(|u| &u.schema).collect();
    let resident = kernel::resident(&[&[&builtin], &schemas[..]].concat())?;
    let is_missing = |s: &&Schema| !s.probes.is_empty() && !resident.contains(&s.name);
    let missing: Vec<&Schema> = schemas.into_iter().filter(is_missing).collect();
    if missing.is_empty() && resident.contains(&builtin.name) {
        return Ok((resident, None));
    }
    host_kernel::check_takes_modules()?;
    if let Some(folder) = folder {
        return Ok((resident, Some(folder.into())));
    }
    if let Some(folder) = kbuild::installed(&missing, &builtin) {
        return Ok((resident, Some(folder)));
    }
    let built = build(&missing, |builtin| kbuild::cached(&missing, builtin))?;
    Ok((resident, built.core.parent().map(Path::to_path_buf)))
}

fn target(args: &Args) -> Result<Target, Failure> {
    match (args.all, args.pids.is_empty(), args.command.is_empty()) {
        (true, true, true) => Ok(Target::All),
        (false, false, true) => Ok(Target::Processes(args.pids.clone())),
        (false, true, false) => Ok(Target::Command(args.command.clone())),
        (false, true, true) => Err(Failure::new("nothing to record").help(
            "give a command (-- COMMAND), processes (-p PID,...), or -a for the whole system",
        )),
        (true, _, false) | (false, false, false) => {
            Err(Failure::new("a command and -a or -p exclude each other")
                .help("start the command yourself, and record with -a or -p --for TIME"))
        }
        (true, false, true) => Err(Failure::new("-a and -p exclude each other")),
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn progress_text(p: &Progress) -> String {
    let seconds = p.elapsed.as_secs_f64();
    let rate = p.events as f64 / seconds.max(0.001);
    let lost =
        if p.lost == 0 { "none lost".to_string() } else { format!("{} LOST", HumanCount(p.lost)) };
    format!(
        "{seconds:.1} s  {} events ({} /s)  {:.1} MB  {lost}",
        HumanCount(p.events),
        HumanCount(rate as u64),
        p.bytes as f64 / 1e6
    )
}

/// One paragraph.
fn summary(outcome: &klogger_recorder::Outcome, output: &std::path::Path) -> String {
    let s = &outcome.summary;
    let seconds = outcome.elapsed.as_secs_f64();
    let mut text = format!(
        "klogger: {} events in {seconds:.2} s ({} /s), {:.1} MB in {}",
        HumanCount(s.events),
        HumanCount((s.events as f64 / seconds.max(0.001)) as u64),
        s.bytes as f64 / 1e6,
        output.display()
    );
    let _ = writeln!(text, "; {}.", losses(&outcome.ledger));
    let mut shown: Vec<&str> = Vec::new();
    for e in outcome
        .ledger
        .entries
        .iter()
        .filter(|e| !shown.contains(&e.key.as_str()) || e.key == "probe_not_attached")
        .collect::<Vec<_>>()
    {
        if !shown.contains(&e.key.as_str()) {
            shown.push(&e.key);
            let _ = writeln!(text, "  {}: {}", e.key, e.text);
        }
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    let _ = writeln!(
        text,
        "See it with: klogger report {0}   klogger cat {0}   klogger info {0}",
        output.display()
    );
    text
}

/// `nothing lost`, `12 LOST`, `12 LOST, and others that could not be counted`
pub fn losses(ledger: &Ledger) -> String {
    match (ledger.lost(), ledger.is_vague()) {
        (0, false) => "nothing lost".into(),
        (0, true) => "events LOST that could not be counted".into(),
        (lost, false) => format!("{} LOST", HumanCount(lost)),
        (lost, true) => format!("{} LOST, and others that could not be counted", HumanCount(lost)),
    }
}

/// `500ms`, `30s`, `5m`, `1h`, or a bare number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a number and a unit: 500ms, 30s, 5m, 1h".into()),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| "write a number and a unit: 500ms, 30s, 5m, 1h".to_string())?
        * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if !d.is_zero() => Ok(d),
        _ => Err("the time must be more than 0".into()),
    }
}

/// Most events that one can ask for in a second: steps between them are counted in sixteenths of a
/// nanosecond.
const RATE_MAX: u64 = 100_000_000;

/// `EVENT=100/s`, `EVENT=10K/s`
fn rate(text: &str) -> Result<RateLimit, String> {
    let wrong = || {
        format!(
            "write EVENT=N/s, with N from 1 to {}M: FORK=100/s, 'PAGE_*=10K/s'",
            RATE_MAX / 1_000_000
        )
    };
    let (event, rate) =
        text.split_once('=').filter(|(event, _)| !event.is_empty()).ok_or_else(wrong)?;
    let rate = rate.strip_suffix("/s").ok_or_else(wrong)?;
    let (digits, scale) = match rate.as_bytes().last() {
        Some(b'K' | b'k') => (&rate[..rate.len() - 1], 1_000),
        Some(b'M' | b'm') => (&rate[..rate.len() - 1], 1_000_000),
        _ => (rate, 1),
    };
    let digits =
        Some(digits).filter(|d| d.bytes().all(|c| c.is_ascii_digit())).ok_or_else(wrong)?;
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
    let per_second = number.filter(|n| (1..=RATE_MAX).contains(n)).ok_or_else(wrong)?;
    Ok(RateLimit { event: event.into(), per_second })
}

/// `0640`: octal, as chmod takes it. Whoever writes a log must be able to.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o777 && m & 0o600 == 0o600);
    mode.ok_or_else(|| {
        "write three octal digits, of which the first is 6 or 7: 600, 640, 644".into()
    })
}

/// A ring of a CPU.
fn size(text: &str) -> Result<u64, String> {
    ring(text, BUFFER_MIN, BUFFER_MAX)
}

/// A ring of a thread of a program.
fn user_size(text: &str) -> Result<u64, String> {
    ring(text, USER_BUFFER_MIN, USER_BUFFER_MAX)
}

/// Rounded up to a power of two.
fn ring(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let possible = || format!("choose from {}K to {}M", least >> 10, most >> 20);
    let bytes =
        bytes(text).map_err(|e| format!("{e}; {}", possible()))?.checked_next_power_of_two();
    bytes.filter(|b| (least..=most).contains(b)).ok_or_else(possible)
}

/// `64K`, `4M`, `1G`, or bytes; more than none.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(format!("unknown unit '{unit}'")),
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|n| n.checked_mul(1 << shift)).filter(|b| *b > 0);
    bytes.ok_or_else(|| "write a number and a unit: 64K, 4M, 1G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("64K"), Ok(64 << 10));
        assert_eq!(size("3m"), Ok(4 << 20));
        assert_eq!(size("65536"), Ok(65536));
        for bad in ["0", "0M", "1G", "1", "x", "4Q", "99999999999999999999", "17179869184G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!(mode("0600"), Ok(0o600));
        assert_eq!(mode("644"), Ok(0o644));
        for bad in ["", "9", "u+r", "0", "444", "4755", "-600"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        let limit = |event: &str, per_second| Ok(RateLimit { event: event.into(), per_second });
        assert_eq!(rate("FORK=100/s"), limit("FORK", 100));
        assert_eq!(rate("PAGE_*=10K/s"), limit("PAGE_*", 10_000));
        assert_eq!(rate("*=1m/s"), limit("*", 1_000_000));
        for bad in [
            "", "FORK", "FORK=", "FORK=100", "=1/s", "F=0/s", "F=/s", "F=K/s", "F=-1/s", "F=+1/s",
            "F=1.5/s", "F=101M/s",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "0", "0s", "s", "1d", "-1", "1e400"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
