// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger symbolize`

use super::{Format, Outcome};
use crate::failure::Failure;
use crate::messages;
use crate::text::open;
use klogger_log::code::{Code, DataPlace, Place};
use klogger_log::reader::Reader;
use klogger_log::text::escaped;
use klogger_log::writer::rewrite;
use klogger_os::files::cannot_write;
use klogger_os::outputs::{Folder, Old, Partial};
use klogger_symbolize::{Missing, Search, Tell, symbolize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name the functions of user stacks again, with other files
///
/// The recorder names them at the end of a recording. 'symbolize' does it again, also on another
/// machine: it finds programs, libraries and debug information by the build ids in the log. Names
/// that it does not find stay as they are. If DEBUGINFOD_URLS is set, servers are asked as well.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  klogger symbolize a.klog        with debug information \
                  installed since\n  klogger symbolize a.klog --debug-dir ~/debug -o b.klog\n  \
                  klogger symbolize a.klog --sysroot /mnt/board\n\n\
                  DIR of --debug-dir has files .build-id/NN/REST.debug, as /usr/lib/debug; DIR \
                  of\n--sysroot the programs and libraries of the machine that recorded.")]
pub struct Args {
    /// The log; it is replaced when all is written. Of a folder, each segment is
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Write another log instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Look for debug information here as well; may be repeated
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Look for programs and libraries below this directory, not below /
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    args.check()?;
    let done = match args.log.is_dir() {
        true => folder(&args)?,
        false => {
            let log = Log::open(&args.log)?;
            let code = log.reader.code();
            check(&log.reader, &code, &args.log)?;
            vec![one(&args, &log, code)?]
        }
    };
    match args.format {
        Format::Text => done.iter().for_each(print),
        Format::Json if args.log.is_dir() => {
            say_json!(json!({ "logs": done.iter().map(Done::json).collect::<Vec<_>>() }));
        }
        Format::Json => done.iter().for_each(|one| say_json!(one.json())),
    }
    Ok(ExitCode::SUCCESS)
}

/// The segments of a recording. Nothing is written before all have been looked at.
fn folder(args: &Args) -> Result<Vec<Done>, Failure> {
    let whole = open::open(&args.log)?;
    check(&whole, &whole.code(), &args.log)?;
    if args.output.is_some() {
        return Err(Failure::new("-o names one log, and a folder has several")
            .help("copy the folder, and name the functions in the copy; or name its segments"));
    }
    let mut done = Vec::new();
    for segment in whole.segments() {
        let path = args.log.join(&segment.file);
        let log = Log::open(&path)?;
        let code = log.reader.code();
        if has_places(&code) {
            done.push(one(args, &log, code)?);
        }
    }
    Ok(done)
}

/// A log, and where it is: what is replaced is the file that was read, whatever its name refers to
/// by then.
struct Log {
    reader: Reader,
    folder: Folder,
    name: OsString,
    was: Metadata,
}

impl Log {
    /// A link stays one.
    fn open(path: &Path) -> Result<Log, Failure> {
        let cannot = |e| {
            Failure::new(format!("{}: {e}", path.display()))
                .help("check the file's name and its permissions")
        };
        let (folder, name) = Folder::of(path).map_err(cannot)?;
        let file = folder.read(&name).map_err(cannot)?;
        let was = file.metadata().map_err(cannot)?;
        Ok(Log { reader: open::of(file, path)?, folder, name, was })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// What was done to a log.
struct Done {
    output: PathBuf,
    places: usize,
    named: usize,
    missing: Vec<Missing>,
}

impl Done {
    fn json(&self) -> Value {
        let Done { output, places, named, missing } = self;
        json!({ "log": output, "places": places, "named": named, "missing": missing })
    }
}

fn one(args: &Args, log: &Log, mut code: Code) -> Result<Done, Failure> {
    let mut debug = args.debug_dir.clone();
    debug.extend(args.sysroot.iter().map(|root| root.join("usr/lib/debug")));
    if args.sysroot.is_none() {
        debug.extend(Search::debug_folders());
    }
    let (sysroot, tell) = (args.sysroot.clone(), Some(messages::fetching_to_the_end as Tell));
    let search = Search { debug, sysroot, tell, ..Search::default() };
    let missing = symbolize(&mut code, &search);
    let output = args.output.clone().unwrap_or_else(|| log.path());
    write(log, &code, args.output.as_deref()).map_err(|e| cannot_write(&output, e))?;
    let output = output.canonicalize().unwrap_or(output);
    let (places, named) = count(&code);
    Ok(Done { output, places, named, missing })
}

impl Args {
    fn check(&self) -> Result<(), Failure> {
        let named = [("--sysroot", self.sysroot.iter().collect::<Vec<_>>())];
        let named = named.into_iter().chain([("--debug-dir", self.debug_dir.iter().collect())]);
        for (option, folders) in named {
            if let Some(folder) = folders.into_iter().find(|f| !f.is_dir()) {
                let folder = escaped(&folder.display().to_string());
                return Err(Failure::new(format!("{option}: there is no directory {folder}")));
            }
        }
        Ok(())
    }
}

/// Refuses a log of which the copy would not be whole, or that has nothing to be named.
fn check(log: &Reader, code: &Code, path: &Path) -> Result<(), Failure> {
    let name = escaped(&path.display().to_string());
    if log.is_being_written() {
        return Err(Failure::new(format!("{name} is still being written"))
            .help("wait until its recorder has ended"));
    }
    if !log.is_complete() || !log.damage().is_empty() {
        return Err(Failure::new(format!("{name} is damaged or incomplete, and is not rewritten"))
            .help(format!("'klogger info {name}' says what is missing")));
    }
    if !has_places(code) {
        let what = format!("{name} has no user stacks, and no data of programs");
        return Err(Failure::new(what).help(
            "only these are named later: events take stacks with klogger_user_stack() or `context \
             user_stack`, and have data in fields `as data`",
        ));
    }
    Ok(())
}

/// Whether something in it may be named.
fn has_places(code: &Code) -> bool {
    !code.stacks.is_empty() || code.data.iter().any(|d| d.at != DataPlace::Nowhere)
}

/// Writes another log, or in the place of the one that was read, which is there as it was until the
/// new one is complete.
fn write(log: &Log, code: &Code, output: Option<&Path>) -> io::Result<()> {
    let Log { reader, folder, name, was } = log;
    let mut made = match output {
        Some(output) => {
            let (folder, name) = Folder::of(output)?;
            Partial::begin(&folder, &name, 0o600)?
        }
        None => Partial::beside(folder, name, 0o600)?,
    };
    // Only root can give it to its owner again; others own what they can replace, or their group.
    let _ = fchown(made.file(), Some(was.uid()), Some(was.gid()));
    made.set_mode(was.mode() & 0o7777)?;
    rewrite::with_code(reader, code, made.file())?;
    match output {
        Some(_) => made.complete_synced(Old::Replace),
        None => made.complete_over(was),
    }
}

/// Places of code and addresses of data in files, and how many of them have names.
fn count(code: &Code) -> (usize, usize) {
    let frames = code.stacks.iter().flat_map(|s| &s.frames);
    let mut places: Vec<Place> = frames.copied().collect();
    places.sort_unstable();
    places.dedup();
    let named = |place: &&Place| match place {
        Place::File(file, at) => code.names.contains_key(&(*file, *at)),
        Place::Address(_) => false,
    };
    let data = code.data.iter().filter(|d| matches!(d.at, DataPlace::Image { .. }));
    let named_data = data.clone().filter(|d| d.name.is_some()).count();
    let named = places.iter().filter(named).count();
    (places.len() + data.count(), named + named_data)
}

fn print(done: &Done) {
    let Done { output, places, named, missing } = done;
    let output = escaped(&output.display().to_string());
    say!("{output}: {named} of {places} places in user code have names");
    for file in missing {
        let id = if file.build_id.is_empty() { "no build id" } else { &file.build_id };
        say!("  {} ({id}): {}", escaped(&file.path), file.why);
        for path in &file.looked {
            say!("    {}", escaped(path));
        }
    }
}
