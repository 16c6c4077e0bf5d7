// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `klogger` command: parses arguments, calls the other crates, prints, and chooses the exit
//! code.
//!
//! **Invariant:** no other crate prints or exits.

#[macro_use]
mod out;

mod cmd;
mod complete;
mod described;
mod diagnostics;
mod engines;
mod external;
mod failure;
mod messages;
mod own_schemata;
mod schema_file;
mod schemata;
mod shared_texts;
mod terminal;
mod text;
mod tips;
mod trace_events;
mod width;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

/// A fine-grained, low-overhead event logger for the Linux kernel
#[derive(Parser)]
#[command(name = "klogger", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// Format of messages on standard error; json: one object per line
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "STYLE",
        default_value = "text",
        display_order = 1000
    )]
    pub messages: messages::Style,
    /// Print directly to the terminal, without $KLOGGER_PAGER, $PAGER or less
    #[arg(long, global = true, display_order = 1001)]
    pub no_pager: bool,
    #[command(subcommand)]
    pub command: cmd::Command,
}

/// The command line.
pub fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Ends with clap's message, or the help that was asked for.
fn refuse(error: &clap::Error) -> ! {
    let message = error.render();
    if !error.use_stderr() {
        match std::io::stdout().is_terminal() {
            true => out::styled(&message.ansi().to_string()),
            false => say_part!("{message}"),
        }
        out::finish();
        std::process::exit(0);
    }
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if coloured { message.ansi().to_string() } else { message.to_string() };
    messages::put(&width::fitted(&text));
    std::process::exit(2)
}

fn main() -> ExitCode {
    // As in other Unix filters: `klogger cat x.klog | head` ends without a message.
    // And while SIGCHLD is ignored, the exit codes of commands are lost.
    // SAFETY: no pointers but the actions, which are defaults.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    klogger_os::survive_file_limits();
    let mut given: Vec<_> = std::env::args_os().collect();
    external::rewrite_help(&mut given);
    let cli =
        Cli::try_parse_from(given).unwrap_or_else(|error| refuse(&tips::add(error, &words())));
    let is_of_machine = cli.command.is_of_machine();
    let code = match run(cli) {
        Ok(code) => {
            out::finish();
            code
        }
        Err(failure) => {
            messages::error(&failure);
            ExitCode::from(2)
        }
    };
    if is_of_machine {
        messages::missed();
    }
    code
}

fn run(cli: Cli) -> failure::Outcome {
    cli.messages.choose()?;
    if cli.no_pager {
        // Also for the programs that klogger runs.
        // SAFETY: klogger has no other thread yet.
        unsafe { std::env::set_var("KLOGGER_PAGER", "") };
    }
    // When it has shown all, errors are printed.
    let _pager = cli.command.is_read().then(terminal::Pager::start).flatten();
    cli.command.run()
}
