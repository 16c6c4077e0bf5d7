// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What users of perf, strace, trace-cmd, bpftrace and LTTng type, and what it is called here.
//!
//! clap suggests an option of a similar name. These tables are for those with another name.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An option of other tools.
struct Theirs {
    /// The command of klogger that it was given to.
    command: &'static str,
    options: &'static [&'static str],
    /// What to write instead.
    tip: &'static str,
}

const fn row(command: &'static str, options: &'static [&'static str], tip: &'static str) -> Theirs {
    Theirs { command, options, tip }
}

const OPTIONS: &[Theirs] = &[
    row("record", &["--events"], "-e NAME records trace events; 'klogger tracepoints' lists them"),
    row("record", &["-t", "-P", "--tid", "--tids"], "'-p ID' takes ids of threads too"),
    row("record", &["-C", "-M", "--cpus"], "--cpu LIST logs events on these CPUs only"),
    row("record", &["-u", "--user"], "--uid USER records the threads of a user"),
    row("record", &["--name", "-n"], "--comm NAME records threads by their name"),
    row("record", &["-G", "--cgroups", "--for-each-cgroup"], "--cgroup PATH records a cgroup"),
    row("record", &["--filter"], "--where 'EVENT: EXPRESSION' logs an event only if it matches"),
    row("record", &["-f", "-ff", "--follow-forks", "--inherit"], "descendants are always recorded"),
    row(
        "record",
        &["-F", "--freq", "--count"],
        "klogger logs each event and takes no samples; --rate-limit EVENT=N/s limits a rate",
    ),
    row(
        "record",
        &["-g", "-k", "--call-graph", "--stack-trace"],
        "stacks are fields of events: `context stack user_stack` (docs/language/stacks.md)",
    ),
    row("record", &["-c"], "the command comes after '--'; 'klogger report FILE' counts events"),
    row(
        "record",
        &["-m", "-b", "--mmap-pages", "--ring", "--ring-size"],
        "the size of a ring is --buffer-size SIZE",
    ),
    row("record", &["-z", "--compression-level"], "--compress compresses the log"),
    row(
        "record",
        &["-d", "-D", "--duration", "--time", "--timeout"],
        "--for TIME ends the recording: --for 10s",
    ),
    row("record", &["-T", "--syscall-times"], "'klogger stopwatch' measures durations"),
    row("record", &["-l", "--list"], "'klogger list' lists schemata, 'klogger tracepoints' points"),
    row(
        "record",
        &["-S", "--snapshot", "--flight-recorder"],
        "--snapshots keeps the last seconds, which 'klogger snapshot' makes a log of",
    ),
    row(
        "record",
        &["--switch-output", "--rotate", "--split"],
        "--segment 60s --keep 10 divides the log, and keeps the newest ten minutes",
    ),
    row("record", &["--switch-max-files"], "--keep N keeps the newest segments of --segment AGE"),
    row("record", &["-v", "--verbose"], "'klogger info FILE' says everything about a recording"),
    row("trace", &["-y", "-yy", "--decode-fds"], "lines have the paths of files"),
    row("trace", &["-C"], "-c prints a summary; 'klogger report' makes it of a --log"),
    row("trace", &["-u", "--user"], "--uid USER traces the threads of a user"),
    row("trace", &["-n", "--name"], "--comm NAME traces threads by their name"),
    row("trace", &["-d", "-D", "--duration", "--timeout"], "--for TIME ends it: --for 10s"),
    row("trace", &["--follow-forks"], "descendants are always traced"),
    row("trace", &["-x", "-Z", "--failed-only"], "--where 'EVENT: result < 0' logs only errors"),
    row("trace", &["-z", "--successful-only"], "--where 'EVENT: result >= 0' logs no errors"),
    row("trace", &["-k", "-i", "--stack-traces"], "stacks are fields of events: 'klogger list'"),
    row("trace", &["-q", "-qq"], "only events, and what was lost, are printed"),
    row("trace", &["--json"], "--format json"),
    row("cat", &["--filter", "--grep", "-F"], "--where EXPRESSION selects events"),
    row("cat", &["-p", "-t", "--pid", "--pids", "--tid", "--tids"], "--where 'pid == 4711'"),
    row("cat", &["--comm", "--comms"], "--where 'pid == \"NAME\"'"),
    row("cat", &["-C", "--cpus"], "--cpu LIST selects CPUs"),
    row("cat", &["-i", "--input"], "the log is an argument: klogger cat FILE"),
    row("cat", &["--since", "--start", "--begin"], "--from TIME omits earlier events"),
    row("cat", &["--until", "--end", "--stop"], "--to TIME omits later events"),
    row("cat", &["--time"], "--from TIME and --to TIME select a time"),
    row("cat", &["--json"], "--format json"),
    row("cat", &["--csv"], "--format csv"),
    row("cat", &["-n", "--head", "--lines"], "klogger cat FILE | head"),
    row("info", &["-i", "--input"], "the log is an argument: klogger info FILE"),
    row("info", &["--json"], "--format json"),
    row("export", &["-i", "--input"], "the log is an argument: klogger export FILE"),
    row("export", &["--format"], "--to FORMAT"),
    row("export", &["--json"], "--to json"),
    row("list", &["--json"], "--format json"),
    row("build", &["-f", "--file"], "-s FILE names a schema"),
    row("show", &["--json"], "--format json"),
];

/// Commands that take no words, and what to write instead of them.
const WORDS: &[(&str, &str)] = &[
    ("list", "'klogger show WORD' shows a schema, 'klogger tracepoints WORD' finds tracepoints"),
    ("build", "schemata are named by -s: klogger build -s WORD"),
];

/// Commands of other tools, and what to run instead.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["script", "dump", "print", "text", "less"], "'klogger cat FILE' prints the events of a log"),
    (&["start", "ftrace", "run", "stream"], "'klogger record' records events"),
    (
        &["strace", "ltrace", "opensnoop", "execsnoop", "snoop"],
        "'klogger trace' prints events while they happen",
    ),
    (&["follow", "tail"], "'klogger cat --follow FILE' prints events while they are recorded"),
    (&["monitor", "htop"], "'klogger top' shows the analyses of the last seconds"),
    (&["stop", "destroy", "quit"], "Ctrl-C, or SIGINT, ends a recording"),
    (&["stat", "stats", "hist", "summary"], "'klogger report FILE' has the figures of a log"),
    (&["timechart", "view", "kernelshark"], "'klogger report FILE --html OUT' makes a page"),
    (&["diff"], "'klogger compare' compares recordings"),
    (&["probe"], "a schema has probes; 'klogger places' lists what they can be attached to"),
    (&["events"], "'klogger tracepoints' and 'klogger list' list what can be recorded"),
    (&["convert", "data"], "'klogger export' writes other formats"),
    (&["query", "duckdb"], "'klogger sql' queries a log"),
    (&["version"], "klogger --version"),
];

/// What a command of another tool is called here.
pub fn command(name: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tip)| *tip)
}

/// Adds a tip to an error about the command line, if there is one. `words`: the command line.
pub fn add(mut error: clap::Error, words: &[String]) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        // "To pass it as a value": it was meant as an option. A usage with it is wrong.
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::Usage);
    }
    if let Some(tip) = tip_for(&error, words) {
        error.remove(ContextKind::SuggestedArg);
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

fn tip_for(error: &clap::Error, words: &[String]) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let is_known = error.get(ContextKind::SuggestedArg).is_some();
    if words.get(1) == Some(word) && word.starts_with('-') && !is_known {
        return Some(format!("the command comes first: klogger record {word} ..."));
    }
    let command = command_of(words)?;
    if ["record", "trace"].contains(&command) && !word.starts_with('-') {
        return Some(format!("the command comes after '--': klogger {command} ... -- {word}"));
    }
    if let Some((_, tip)) =
        WORDS.iter().find(|(name, _)| *name == command && !word.starts_with('-'))
    {
        return Some(tip.replace("WORD", word));
    }
    let name = word.split('=').next().unwrap_or(word);
    let meant = |row: &&Theirs| row.command == command && row.options.contains(&name);
    OPTIONS.iter().find(meant).map(|row| row.tip.into())
}

/// The command's name: the first word that is not an option, nor the value of `--messages`.
fn command_of(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--messages" => words.next().map(drop)?,
            _ if word.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    /// The options of a command, as they are written.
    fn options_of(command: &str) -> Vec<String> {
        let cli = Cli::command();
        let Some(found) = cli.find_subcommand(command) else {
            assert!(crate::external::programs().any(|(name, _)| name == command), "{command}");
            return Vec::new();
        };
        let short = found.get_arguments().filter_map(|a| a.get_short()).map(|c| format!("-{c}"));
        let long = found.get_arguments().filter_map(|a| a.get_long()).map(|l| format!("--{l}"));
        short.chain(long).collect()
    }

    /// The options that a tip names, outside of other commands' lines.
    fn named(tip: &str) -> impl Iterator<Item = &str> {
        let own = tip.split("$(").next().unwrap_or(tip);
        let words = own.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.filter(|w| !w.trim_start_matches('-').is_empty() && w.starts_with('-'))
    }

    #[test]
    fn tips_name_options_that_there_are() {
        for row in OPTIONS {
            let other = row.tip.split('\'').skip(1).step_by(2);
            let other = other.filter_map(|quoted| quoted.strip_prefix("klogger ")).next();
            let command = other.and_then(|t| t.split(' ').next()).unwrap_or(row.command);
            let known = [options_of(row.command), options_of(command)].concat();
            let mut named = named(row.tip);
            assert!(named.all(|o| known.iter().any(|k| k == o)), "{command}: {}", row.tip);
        }
    }

    #[test]
    fn no_tip_is_for_an_option_that_klogger_has() {
        for row in OPTIONS {
            let known = options_of(row.command);
            let both: Vec<_> =
                row.options.iter().filter(|o| known.iter().any(|k| k == *o)).collect();
            assert!(both.is_empty(), "'klogger {}' has {both:?}: remove the tip", row.command);
        }
        let names = Cli::command();
        for name in COMMANDS.iter().flat_map(|(names, _)| *names) {
            assert!(names.find_subcommand(name).is_none(), "'klogger {name}' exists");
        }
    }

    #[test]
    fn the_command_of_a_line() {
        let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
        assert_eq!(command_of(&words("klogger --messages json record -t 1")), Some("record"));
        assert_eq!(command_of(&words("klogger --messages=json cat")), Some("cat"));
        assert_eq!(command_of(&words("klogger")), None);
    }
}
