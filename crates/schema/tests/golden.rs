// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/golden/schema/CASE.klogger` must parse to the model in `CASE.txt`, and to the same model
//! after it was printed. One more case is one more pair of files; KLOGGER_BLESS=1 writes the
//! second.

mod common;

use common::{all_well, compare, dump, entries, name, print};
use klogger_schema::{Options, parse};

#[test]
fn schemata_mean_what_is_expected() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for path in entries("tests/golden/schema")
        .into_iter()
        .filter(|p| p.extension().is_none_or(|e| e != "txt"))
    {
        cases += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = match parse(&name(&path), &text, &Options::default()) {
            Ok(parsed) => parsed,
            Err(errors) => {
                wrong.push(format!("{}: {errors:#?}", path.display()));
                continue;
            }
        };
        let warnings: String =
            parsed.warnings.iter().map(|w| format!("\nwarning: {w}\n")).collect();
        let expected =
            path.with_file_name(format!("{}.txt", name(&path).trim_end_matches(".klogger")));
        wrong.extend(compare(&expected, &format!("{}{warnings}", dump(&parsed.schema))));
        wrong.extend(again(&name(&path), &parsed.schema));
    }
    assert!(cases > 0);
    all_well(wrong);
}

/// Prints the model, parses that, and compares; only the positions of bodies may differ.
fn again(name: &str, schema: &klogger_schema::model::Schema) -> Option<String> {
    let printed = print(schema);
    let meaning = |s| {
        dump(s)
            .lines()
            .map(|l| l.split(" at ").next().unwrap().to_string() + "\n")
            .collect::<String>()
    };
    match parse(name, &printed, &Options::default()) {
        Ok(second) if meaning(&second.schema) == meaning(schema) => None,
        Ok(second) => Some(format!(
            "{name} means something else when printed:\n{printed}\n{}",
            dump(&second.schema)
        )),
        Err(errors) => Some(format!("{name} cannot be read when printed:\n{printed}\n{errors:#?}")),
    }
}
