// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Golden files: schemata in a folder of `tests/golden`, and beside each the expected text.

use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// All schemata of `tests/golden/NAME`, each with its file.
pub fn schemas(name: &str) -> Vec<(PathBuf, Schema)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "klogger"));
    files.sort();
    assert!(!files.is_empty(), "no golden schemata in {}", folder.display());
    let load = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let schema = parse(&name, &text, &Options::default())
            .unwrap_or_else(|e| panic!("{name}: {e:?}"))
            .schema;
        (path, schema)
    };
    files.into_iter().map(load).collect()
}

/// Checks that a file has this text; KLOGGER_BLESS=1 writes it.
pub fn expect(file: &Path, text: &str) {
    if env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(file, text).unwrap();
    }
    let wanted = fs::read_to_string(file).unwrap_or_default();
    assert!(
        !wanted.is_empty(),
        "{} is empty or missing; write it with KLOGGER_BLESS=1",
        file.display()
    );
    assert_eq!(text, wanted, "{} differs", file.display());
}
