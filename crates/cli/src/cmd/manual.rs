// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger manual DIR`: generates man pages and shell completions from the declarations of the
//! options. For `make install`.

use super::Outcome;
use crate::external;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write man pages (DIR/man1) and completions (DIR/completions)
#[derive(clap::Args)]
pub struct Args {
    /// Created if it does not exist
    directory: PathBuf,
}

pub fn run(args: Args) -> Outcome {
    let cannot = |e: std::io::Error| {
        Failure::new(format!("cannot write to {}: {e}", args.directory.display()))
    };
    write(&args.directory).map_err(cannot)?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path) -> std::io::Result<()> {
    let (man, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(crate::Cli::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut with_programs(), "klogger", &completions)?;
    }
    Ok(())
}

/// The programs `klogger-NAME` are completed as commands of klogger, without their options.
fn with_programs() -> clap::Command {
    let program = |(name, about): (&'static str, &'static str)| {
        clap::Command::new(name).about(about).disable_help_flag(true)
    };
    crate::Cli::command().subcommands(external::programs().map(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page_and_is_completed() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let bash = fs::read_to_string(directory.path().join("completions/klogger.bash")).unwrap();
        for c in crate::Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let page = directory.path().join(format!("man1/klogger-{}.1", c.get_name()));
            assert!(page.exists(), "no page for {}", c.get_name());
            assert!(bash.contains(c.get_name()), "no completion for {}", c.get_name());
        }
        let main = fs::read_to_string(directory.path().join("man1/klogger.1")).unwrap();
        for (name, about) in external::programs() {
            // In a page these two characters are escaped.
            let start = about.split(['\'', '-']).next().unwrap_or_default();
            assert!(main.contains(start), "{name} is not in the page of klogger");
            assert!(bash.contains(&format!("klogger,{name})")), "no completion for {name}");
        }
    }

    #[test]
    fn declarations_are_consistent() {
        crate::Cli::command().debug_assert();
    }
}
