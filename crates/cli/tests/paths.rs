// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files and folders named in the pages about the layout of the code exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Texts between backquotes that begin with a folder at the root. Words in capitals are
/// placeholders.
fn paths(page: &str) -> Vec<String> {
    let folders = ["crates/", "runtime/", "tests/", "schemata/", "python/", "docs/", "fuzz/"];
    let quoted = page.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|word| folders.iter().any(|f| word.starts_with(f)));
    let fixed = paths.filter(|path| {
        !path
            .split(['/', '.'])
            .any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()))
    });
    fixed.map(String::from).collect()
}

fn check(page: &str, at_least: usize) {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let found = paths(&text);
    assert!(found.len() >= at_least, "{page} names only {} paths", found.len());
    let missing: Vec<&String> = found.iter().filter(|p| !root().join(p).exists()).collect();
    assert!(missing.is_empty(), "{page} names what is not there: {missing:?}");
}

#[test]
fn adding_names_files_that_exist() {
    check("docs/adding.md", 40);
}

#[test]
fn each_of_the_ten_questions_has_an_answer() {
    let text = std::fs::read_to_string(root().join("docs/adding.md")).unwrap();
    let (_, questions) = text.split_once("## Ten questions").unwrap();
    for number in 1..=10 {
        let (_, rest) = questions.split_once(&format!("\n{number}. ")).unwrap();
        let one = rest.split_once(&format!("\n{}. ", number + 1)).map_or(rest, |(one, _)| one);
        let (question, answer) = one.split_once('?').unwrap();
        let answer = answer.rsplit_once('?').map_or(answer, |(_, answer)| answer);
        assert!(!paths(answer).is_empty(), "no path answers: {question}?");
    }
}
