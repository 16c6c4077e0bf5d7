// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger build`

use super::record::triggers::{set_in_modules, trigger};
use super::{Format, Outcome};
use crate::engines;
use crate::failure::Failure;
use crate::schemata;
use indicatif::{ProgressBar, ProgressStyle};
use klogger_engines::engine::EngineInfo;
use klogger_engines::kernel;
use klogger_log::trigger::Trigger;
use klogger_schema::model::Schema;
use klogger_toolchain::bundled;
use klogger_toolchain::clang::CompileError;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::kbuild::{self, Built};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  klogger build -s scheduler -o modules   klogger.ko, klogger_scheduler.ko
  klogger build -s ./my.klogger --kernel ~/linux -o modules
                                          for another kernel
  klogger build -o modules                klogger.ko, for your own modules
Then, on the machine with that kernel:
  klogger record --engine kernel --modules modules -s scheduler -- COMMAND

For the running kernel, 'klogger record --engine kernel' builds the modules
that it needs.";

/// Build kernel modules from schemata, for the kernel engine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A schema by name, or its file or folder; may be repeated
    #[arg(short, long = "schema", value_name = "SCHEMA")]
    schemas: Vec<String>,
    /// Engine to build for
    #[arg(
        long,
        default_value = kernel::INFO.name,
        value_parser = engines::those_that(|e| e.build.is_some())
    )]
    engine: &'static EngineInfo,
    /// Build tree of a kernel, or its headers [default: the running kernel's]
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// Compile a trigger into the modules, for a recording with --modules and the same triggers, as
    /// with 'klogger record'. May be repeated
    #[arg(long = "trigger", value_name = "EVENT where EXPRESSION: ACTION", value_parser = trigger)]
    triggers: Vec<Trigger>,
    /// Directory for the modules; created if it does not exist
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: Args) -> Outcome {
    let make = args.engine.build.ok_or_else(|| {
        Failure::new(format!("for the {} engine there is nothing to build", args.engine.name))
    })?;
    let schemas =
        args.schemas.iter().map(|word| schemata::schema(word)).collect::<Result<Vec<_>, _>>()?;
    let units = schemas.into_iter().map(|schema| CompiledSchema { schema, object: None });
    let mut units: Vec<_> = units.collect();
    set_in_modules(&mut units, &args.triggers)?;
    let schemas: Vec<&Schema> = units.iter().map(|unit| &unit.schema).collect();
    let kernel = match args.kernel {
        Some(dir) => dir,
        None => kbuild::kernel_dir(None)?,
    };
    let built = build(&schemas, |builtin| make(&schemas, builtin, &kernel, &args.output))?;
    if args.format == Format::Json {
        let written: Vec<_> = built.schemata.iter().chain([&built.core, &built.symbols]).collect();
        let all = json!({
            "kernel": built.release, "modules": built.schemata, "core": built.core,
            "symbols": built.symbols, "written": written,
        });
        say!("{all:#}");
        return Ok(ExitCode::SUCCESS);
    }
    say!("modules for kernel {}:", built.release);
    built.schemata.iter().chain([&built.core]).for_each(|path| say!("  {}", path.display()));
    say!("symbols for modules of your own: {}", built.symbols.display());
    Ok(ExitCode::SUCCESS)
}

/// Runs a build, which takes seconds, and prints the compiler's messages about the schemata.
pub fn build(
    schemas: &[&Schema],
    run: impl FnOnce(&Schema) -> Result<Built, CompileError>,
) -> Result<Built, Failure> {
    let builtin = bundled::builtin()?.schema;
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let progress =
        ProgressBar::new_spinner().with_style(style).with_message("building kernel modules");
    progress.enable_steady_tick(Duration::from_millis(100));
    let result = run(&builtin);
    progress.finish_and_clear();
    match result {
        Ok(built) => {
            schemata::show_each(schemas, &built.warnings);
            Ok(built)
        }
        Err(CompileError::Failed(error)) => Err(error.into()),
        Err(CompileError::Rejected(found)) => {
            schemata::show_each(schemas, &found);
            Err(Failure::printed())
        }
    }
}
