// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiles the built-in schema and every `schemata/*/*.klogger` for BPF, so that recording with
//! them needs no clang. Types come from the BTF in $KLOGGER_BTF, or from that of the running
//! kernel; CO-RE relocates them for other kernels.

use klogger_codegen::{BUILTIN_SCHEMA, KernelTypes, RUNTIME, Runs, SHARED, bpf};
use klogger_schema::include::{ENDING, whole};
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/lacking.rs"]
mod lacking;

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    println!("cargo:rerun-if-env-changed=KLOGGER_BTF");
    println!("cargo:rerun-if-changed=../../schemata");
    let btf = env::var("KLOGGER_BTF").unwrap_or_else(|_| "/sys/kernel/btf/vmlinux".into());
    let bytes = fs::read(&btf).unwrap_or_else(|e| {
        panic!(
            "cannot read the kernel's types from {btf}: {e}. Set KLOGGER_BTF to a file that \
                scripts/kernel-btf made"
        )
    });
    let types = KernelTypes::new(&bytes).unwrap();
    let mut list = String::from("static BUNDLED: &[Bundled] = &[\n");
    for (name, file, text) in schemata(&root.join("schemata")) {
        let _ = writeln!(list, "{},", entry(&out, &types, &name, &file, &text, false));
    }
    list += "];\n";
    let builtin = entry(&out, &types, "klogger", "runtime/klogger.klogger", BUILTIN_SCHEMA, true);
    let _ = writeln!(list, "static BUILTIN: Bundled = {builtin};");
    fs::write(out.join("bundled.rs"), list).unwrap();
}

/// (name, path from the root, text) of each bundled schema, in order.
fn schemata(folder: &Path) -> Vec<(String, String, String)> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut list = Vec::new();
    for name in names {
        let path = folder.join(&name).join(format!("{name}.klogger"));
        if let Ok(text) = fs::read_to_string(&path) {
            println!("cargo:rerun-if-changed={}", path.display());
            list.push((name.clone(), format!("schemata/{name}/{name}.klogger"), text));
        }
    }
    list
}

/// Compiles one schema and returns the Rust text that describes it.
fn entry(
    out: &Path,
    types: &KernelTypes,
    name: &str,
    file: &str,
    text: &str,
    builtin: bool,
) -> String {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let find = |name: &str| {
        // A text of the schema's own folder comes first, as in `record -s FILE`.
        let own = Path::new(file).with_file_name(format!("{name}.{ENDING}"));
        if let Ok(text) = fs::read_to_string(root.join(&own)) {
            return Ok((own.display().to_string(), text));
        }
        let found = SHARED.iter().find(|(known, _)| *known == name);
        let missing = || ("klogger has no such text".to_string(), String::new());
        found.map(|(name, text)| (name.to_string(), text.to_string())).ok_or_else(missing)
    };
    let whole = whole(file, text, &find);
    assert!(whole.found.is_empty(), "{file}: {:?}", whole.found);
    let text = &whole.text;
    let parsed = parse(file, text, &Options { builtin, ..Options::default() });
    let mut schema =
        parsed.unwrap_or_else(|errors| panic!("{file} does not parse: {errors:?}")).schema;
    let folder = out.join(name);
    fs::create_dir_all(folder.join("klogger")).unwrap();
    for (header, text) in RUNTIME {
        fs::write(folder.join(header), text).unwrap();
    }
    let object = folder.join(format!("{name}.o"));
    let lacks = compiled(&folder, &mut schema, types, &object);
    format!(
        "Bundled {{ name: {name:?}, file: {file:?}, text: {text:?}, object: \
         include_bytes!({object:?}), lacks: &{lacks:?} }}"
    )
}

/// Compiles the programs whose types the kernel of the build has. Returns what the others lack, by
/// probe and target; they are refused only when they are used.
fn compiled(
    folder: &Path,
    schema: &mut Schema,
    types: &KernelTypes,
    object: &Path,
) -> Vec<(usize, usize, String)> {
    let mut all = Vec::new();
    loop {
        let texts = bpf::source(schema, types, Runs::Anywhere).unwrap();
        for t in &texts {
            fs::write(folder.join(&t.name), &t.text).unwrap();
        }
        let Err(said) = clang(folder, &texts[0].name, object) else { return all };
        let file = schema.file.clone();
        let found = lacking::probes(schema, &missing(&said, &file));
        let found = found.unwrap_or_else(|| panic!("{file} does not compile:\n{said}"));
        for (probe, what) in found {
            // Alternatives share a body, and the preferred one is as a rule of the newest kernels.
            let targets = &mut schema.probes[probe].targets;
            let first = targets.iter().position(|target| target.lacks.is_none());
            let first = first.unwrap_or_else(|| panic!("{file} does not compile:\n{said}"));
            let label = targets[first].label();
            println!("cargo:warning={file}: without {label}: {what}");
            targets[first].lacks = Some(what.clone());
            all.push((probe, first, what));
        }
    }
}

/// `FILE:LINE:COLUMN: error: MESSAGE`; those of other files have a line that no probe has.
fn missing<'a>(said: &'a str, file: &str) -> Vec<lacking::Missing<'a>> {
    let errors = said.lines().filter_map(|line| line.split_once(": error: "));
    let of = |(place, message): (&str, &'a str)| {
        let own = place.strip_prefix(file).and_then(|rest| rest.strip_prefix(':'));
        let line = own.and_then(|rest| rest.split(':').next()?.parse().ok()).unwrap_or(0);
        lacking::Missing { line, message }
    };
    errors.map(of).collect()
}

/// The preferred one first; src/clang.rs and scripts/packages read the same file.
const COMPILERS: &str = include_str!("src/compilers.txt");

/// What it says, if it refuses the source.
fn clang(folder: &Path, source: &str, object: &Path) -> Result<(), String> {
    for compiler in COMPILERS.lines() {
        let mut command = Command::new(compiler);
        command
            .current_dir(folder)
            .args(include!("src/flags.in"))
            .arg("-Werror")
            .arg(source)
            .arg("-o")
            .arg(object);
        match command.output() {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => return Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => panic!("cannot run {compiler}: {e}"),
        }
    }
    panic!("no clang found: apt-get install {}", COMPILERS.lines().next().unwrap_or("clang"));
}
