// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where threads have a variable that a program or library exports: what is found in the file is
//! what the program itself finds in its memory.

#![cfg(target_arch = "x86_64")]

use klogger_programs::thread_local::{Access, Note, find};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Other variables are before and behind it, of which one needs a large alignment.
const VARIABLES: &str = "
#include <stdint.h>
__attribute__((aligned(64))) __thread char before[72] = {1};
__thread void *wanted;
__thread char behind[5];
static __thread void *hidden;
void *use(void) { return behind + (before[1] + (hidden != 0)); }
__attribute__((visibility(\"default\"))) void **place(void) { return &wanted; }
";
/// Prints how far its variable is from the thread pointer.
const MAIN: &str = "
#include <stdio.h>
int main(void)
{
    long thread;
    __asm__(\"mov %%fs:0, %0\" : \"=r\"(thread));
    printf(\"%ld\\n\", (long)place() - thread);
    return use() == 0;
}
";

fn cc(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let number = fs::read_dir(folder).unwrap().count();
    let (text, made) = (folder.join(format!("{number}.c")), folder.join(format!("{number}")));
    fs::write(&text, source).unwrap();
    let status = Command::new("cc").arg(&text).arg("-o").arg(&made).args(options).status();
    assert!(status.unwrap().success());
    made
}

fn access(path: &Path) -> Option<Access> {
    find(File::open(path).unwrap(), "wanted").unwrap().map(|found| found.access)
}

#[test]
fn in_a_program_it_is_where_the_program_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{VARIABLES}{MAIN}");
    let exported = "-Wl,--export-dynamic-symbol=wanted";
    for options in [
        &["-O2", "-rdynamic"][..],
        &["-O0", exported],
        &["-no-pie", "-fno-pie", exported],
        &["-rdynamic", "-s"],
        &["-static-pie", exported],
    ] {
        let program = cc(folder.path(), &source, options);
        let said = Command::new(&program).output().unwrap().stdout;
        let said: i64 = String::from_utf8(said).unwrap().trim().parse().unwrap();
        if options.contains(&"-static-pie") && access(&program).is_none() {
            // Some linkers export nothing of such a program.
            continue;
        }
        assert_eq!(access(&program), Some(Access::Fixed(said as u64)), "{options:?}");
    }
}

#[test]
fn what_is_not_exported_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{VARIABLES}{MAIN}");
    assert_eq!(access(&cc(folder.path(), &source, &[])), None);
    let other = source.replace("__thread void *wanted", "void *wanted");
    assert_eq!(access(&cc(folder.path(), &other, &["-rdynamic"])), None);
    let larger = source.replace("__thread void *wanted", "__thread void *wanted[2]");
    let larger = larger.replace("&wanted;", "&wanted[0];");
    assert_eq!(access(&cc(folder.path(), &larger, &["-rdynamic"])), None);
    assert!(find(File::open(folder.path().join("0.c")).unwrap(), "wanted").is_err());
}

#[test]
fn of_a_library_the_loader_notes_it() {
    let folder = tempfile::tempdir().unwrap();
    let note = |options: &[&str]| {
        let library =
            cc(folder.path(), VARIABLES, &[&["-O2", "-shared", "-fPIC"], options].concat());
        match access(&library) {
            Some(Access::Noted(notes)) => notes,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(note(&["-ftls-model=initial-exec"])[..], [Note::Offset(_)]));
    assert!(matches!(note(&["-mtls-dialect=gnu2"])[..], [Note::Descriptor(_)]));
    assert!(matches!(note(&["-mtls-dialect=gnu"])[..], [Note::Module(_, None)]));
    // The linker resolves the symbol, and leaves its offset to the loader; or others of the file
    // have one as well, which is not that of this variable.
    for symbolic in ["-Wl,-Bsymbolic", "-Wl,-z,now"] {
        let notes = note(&["-mtls-dialect=gnu2", symbolic]);
        assert!(matches!(notes[..], [Note::Descriptor(_)]), "{notes:?}");
    }
}

#[test]
fn a_mapping_of_code_tells_where_the_file_begins() {
    let folder = tempfile::tempdir().unwrap();
    let program = cc(folder.path(), &format!("{VARIABLES}{MAIN}"), &["-O2", "-rdynamic"]);
    let found = find(File::open(&program).unwrap(), "wanted").unwrap().unwrap();
    let text = Command::new("readelf").args(["-lW"]).arg(&program).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|l| l.trim().starts_with("LOAD") && l.contains("R E")).unwrap();
    let mut words = line.split_whitespace().skip(1);
    let mut hex = || u64::from_str_radix(&words.next().unwrap()[2..], 16).unwrap();
    let (offset, address) = (hex() & !0xfff, hex() & !0xfff);
    assert_eq!(found.base(0x5555_0000_0000 + address, offset), Some(0x5555_0000_0000));
    // Further on in the same segment, and outside of it.
    assert_eq!(found.base(0x5555_0000_0040 + address, offset + 0x40), Some(0x5555_0000_0000));
    assert_eq!(found.base(0x5555_0000_0000, 1 << 40), None);
}

#[test]
fn a_table_that_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = cc(folder.path(), VARIABLES, &["-shared", "-fPIC", "-mtls-dialect=gnu2"]);
    let mut bytes = fs::read(&path).unwrap();
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    };
    let sections = number(&bytes, 0x28);
    let dynsym = (sections..bytes.len()).step_by(64).find(|at| bytes[at + 4] == 11).unwrap();
    let names = sections + 64 * bytes[dynsym + 0x28] as usize;
    // A file with a hole, in which the names of its symbols end.
    let size = 1u64 << 29;
    bytes[names + 0x20..names + 0x28].copy_from_slice(&size.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(2 * size).unwrap();
    assert!(find(File::open(&path).unwrap(), "wanted").is_err());
}

#[test]
fn forged_files_have_it_somewhere_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = cc(folder.path(), VARIABLES, &["-shared", "-fPIC", "-mtls-dialect=gnu2", "-s"]);
    let whole = fs::read(&path).unwrap();
    assert!(access(&path).is_some());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let forged = folder.path().join("forged");
    let mut outcomes = [0; 3];
    for _ in 0..4000 {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            // Headers and tables are at the beginning and the end, and so are most of the changes.
            let at = match random(3) {
                0 => random(0x300),
                1 => bytes.len() - 1 - random(0x700),
                _ => random(bytes.len()),
            };
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)];
        }
        bytes.truncate(bytes.len() - random(2) * random(whole.len()));
        fs::write(&forged, &bytes).unwrap();
        let found = find(File::open(&forged).unwrap(), "wanted");
        outcomes[match &found {
            Ok(Some(_)) => 0,
            Ok(None) => 1,
            Err(_) => 2,
        }] += 1;
        if let Ok(Some(found)) = found {
            for (start, offset) in [(0, 0), (u64::MAX, u64::MAX), (0x1000, 0x1000)] {
                let _ = found.base(start, offset);
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
