// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiles what a kernel has the types for. The C of a probe that this kernel does not have, or
//! can do without, need not compile with its types.

use crate::clang::{self, CompileError};
use crate::compiled_schema::{Plan, plan};
use crate::lacking::{Missing, probes};
use klogger_codegen::KernelTypes;
use klogger_schema::model::Schema;
use klogger_schema::{Diagnostic, Severity};

/// What was compiled.
pub struct Portable {
    /// With what its probes lack.
    pub schema: Schema,
    pub object: Vec<u8>,
    pub warnings: Vec<Diagnostic>,
    /// What the compiler refuses of the programs that were left out, as warnings.
    pub left_out: Vec<Diagnostic>,
}

/// Compiles the probes of a schema: all that are in it, or else those that this kernel has, without
/// those alternatives whose types it lacks.
pub fn compile(schema: &Schema, types: &KernelTypes) -> Result<Portable, CompileError> {
    let errors = match clang::compile(schema, types) {
        Ok((object, warnings)) => {
            return Ok(Portable { schema: schema.clone(), object, warnings, left_out: Vec::new() });
        }
        Err(CompileError::Failed(error)) => return Err(CompileError::Failed(error)),
        Err(CompileError::Rejected(errors)) => errors,
    };
    let mut schema = schema.clone();
    // Each round finds something that one more target lacks.
    loop {
        let plans = plan(&schema, types)?;
        match clang::compile(&planned(&schema, &plans), types) {
            Ok((object, warnings)) => {
                // Each alternative has a program with the same body.
                let mut left_out: Vec<Diagnostic> = Vec::new();
                for found in errors.into_iter().map(|(_, d)| as_warning(d)) {
                    let is_same =
                        |d: &Diagnostic| (d.span, &d.message) == (found.span, &found.message);
                    if !left_out.iter().any(is_same) {
                        left_out.push(found);
                    }
                }
                return Ok(Portable { schema, object, warnings, left_out });
            }
            Err(CompileError::Rejected(found)) => match lacking(&schema, &plans, &found) {
                Some(lacking) => {
                    lacking.into_iter().for_each(|(probe, target, what)| {
                        schema.probes[probe].targets[target].lacks = Some(what);
                    });
                }
                None => return Err(CompileError::Rejected(found)),
            },
            Err(failed) => return Err(failed),
        }
    }
}

/// The schema with the programs of planned targets only.
fn planned(schema: &Schema, plans: &[Plan]) -> Schema {
    let mut planned = schema.clone();
    for (probe, plan) in planned.probes.iter_mut().zip(plans) {
        let others = probe.targets.iter_mut().enumerate().filter(|(n, _)| Some(*n) != plan.target);
        others.for_each(|(_, target)| {
            target.lacks.get_or_insert_with(|| "it is not attached here".into());
        });
    }
    planned
}

/// The targets, of probes that have alternatives, that errors say lack something.
fn lacking(
    schema: &Schema,
    plans: &[Plan],
    found: &[(usize, Diagnostic)],
) -> Option<Vec<(usize, usize, String)>> {
    let errors = found.iter().filter(|(_, d)| d.severity == Severity::Error);
    let errors: Vec<Missing> = errors
        .map(|(_, d)| Missing {
            line: schema.text[..d.span.start].matches('\n').count() as u32 + 1,
            message: d.message.strip_prefix("C: ").unwrap_or_default(),
        })
        .collect();
    let of_target = |(probe, what): (usize, String)| {
        let target = plans[probe].target.filter(|_| schema.probes[probe].targets.len() > 1)?;
        Some((probe, target, what))
    };
    probes(schema, &errors)?.into_iter().map(of_target).collect()
}

fn as_warning(diagnostic: Diagnostic) -> Diagnostic {
    let message = format!("left out on this kernel: {}", diagnostic.message);
    Diagnostic { severity: Severity::Warning, message, ..diagnostic }
}
