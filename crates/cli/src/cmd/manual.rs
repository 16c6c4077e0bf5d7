// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger manual DIR`: generates man pages from the declarations of the options and from docs/,
//! and writes the scripts of completion. For `make install`.

mod page;

use super::Outcome;
use crate::complete::SCRIPTS;
use crate::described;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_mangen::Man;
use klogger_os::outputs::{Folder, Old};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write man pages (DIR/man1, DIR/man7) and completions (DIR/completions)
#[derive(clap::Args)]
pub struct Args {
    /// Created if it does not exist
    directory: PathBuf,
}

pub fn run(args: Args) -> Outcome {
    let cannot = |e: std::io::Error| {
        Failure::new(format!("cannot write to {}: {e}", args.directory.display()))
            .help("name a folder that you can write to")
    };
    write(&args.directory).map_err(cannot)?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path) -> std::io::Result<()> {
    let folder = |name: &str| Folder::make(&directory.join(name));
    let mut command = described().disable_help_subcommand(true);
    command.build();
    write_commands(&command, &folder("man1")?)?;
    let (man7, completions) = (folder("man7")?, folder("completions")?);
    for (name, text) in page::PAGES {
        put(&man7, &format!("{name}.7"), page::roff(name, text).as_bytes())?;
    }
    for (name, text) in SCRIPTS {
        put(&completions, name, text.as_bytes())?;
    }
    Ok(())
}

fn put(folder: &Folder, name: &str, text: &[u8]) -> std::io::Result<()> {
    folder.write(name.as_ref(), 0o666, Old::Replace, text)
}

/// The page of a command, and those of its own commands.
fn write_commands(command: &clap::Command, folder: &Folder) -> std::io::Result<()> {
    for command in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_commands(command, folder)?;
    }
    // Its own text after the options would be filled as one paragraph.
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    let page = Man::new(command.clone().after_help("").after_long_help(""))
        .title(name.as_str())
        .date("")
        .source(concat!("klogger ", env!("CARGO_PKG_VERSION")))
        .manual("klogger");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    if !after.is_empty() {
        text.extend(page::section(&after).bytes());
    }
    text.extend(see_also(&name).bytes());
    put(folder, &page.get_filename(), &text)
}

fn see_also(name: &str) -> String {
    let pages = page::PAGES.map(|(page, _)| format!(".BR {page} (7)\n").replace('-', "\\-"));
    match name {
        "klogger" => format!(".SH SEE ALSO\n{}", pages.concat()),
        _ => ".SH SEE ALSO\n.BR klogger (1)\n".into(),
    }
}

/// klogger with the programs `klogger-NAME`, which its page lists as other commands.
fn described() -> clap::Command {
    crate::Cli::command().subcommands(described::commands()).after_help("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_visible_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let text = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let main = text("man1/klogger.1");
        for c in described().get_subcommands() {
            let (name, page) = (c.get_name(), format!("man1/klogger-{}.1", c.get_name()));
            let is_there = directory.path().join(&page).exists();
            assert_eq!(is_there, !c.is_hide_set(), "{page}");
            let listed = format!("klogger\\-{}(1)", name.replace('-', "\\-"));
            assert_eq!(main.contains(&listed), is_there, "{name}");
            let shown = |arg: &&clap::Arg| is_there && !arg.is_hide_set();
            for arg in c.get_arguments().filter(shown) {
                let long = arg.get_long().map(|long| long.replace('-', "\\-"));
                assert!(long.is_none_or(|long| text(&page).contains(&long)), "{page}: {arg}");
            }
        }
        let language = text("man7/klogger-schema-language.7");
        for section in ["schema", "Fields", "Probe", "Errors"] {
            assert!(language.contains(&format!("\n.SH \"{section}\"\n")), "{section}");
        }
        assert!(text("completions/klogger.bash").contains("complete -F _klogger klogger"));
    }

    #[test]
    fn declarations_are_consistent() {
        crate::Cli::command().debug_assert();
    }
}
