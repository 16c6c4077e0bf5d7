// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Programs are untrusted: whatever is wrong with a file, the result is a place or a message.

use klogger_programs::{Of, Programs, list};
use klogger_schema::model::{ProbeKind, Target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A static probe, and a function with several instructions.
const PROGRAM: &str = r#"
__attribute__((noinline)) long place(long n) { return 3 * n + 1; }
asm(".pushsection .stapsdt.base,\"a\"\nbase: .space 1\n.popsection");
int main(void) {
    asm volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"
        ".4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n"
        "992: .balign 4\n993: .8byte 990b, base, 0\n"
        ".asciz \"p\"\n.asciz \"q\"\n.asciz \"8@$7\"\n994: .balign 4\n.popsection");
    return place(1) == 0;
}
"#;

fn build(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    let status = cc.args(["-O2", "-nostartfiles", "-Wl,-e,main", "-o"]).arg(&program).arg(&source);
    assert!(status.status().unwrap().success());
    program
}

fn look(program: &Path) -> [bool; 4] {
    let programs = Programs { of: Of::All };
    let target = |kind, place: &str| {
        let name = format!("{}:{place}", program.display());
        programs.find(&Target { name, ..Target::bare(kind, "") }).is_ok()
    };
    [
        list(&programs, &program.to_string_lossy()).is_ok(),
        target(ProbeKind::User, "place"),
        target(ProbeKind::User, "place+1"),
        target(ProbeKind::Usdt, "p:q"),
    ]
}

#[test]
fn a_whole_program() {
    let folder = tempfile::tempdir().unwrap();
    let [listed, function, _, probe] = look(&build(folder.path()));
    assert!(listed && function && probe);
}

#[test]
fn damaged_programs_are_no_danger() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let whole = fs::read(&program).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let mut good = 0;
    for round in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(4) {
            // Mostly where the structures are: the header, segments, sections.
            let at = match round % 3 {
                0 => random(0x400),
                1 => sections + random(bytes.len() - sections),
                _ => random(bytes.len()),
            };
            bytes[at] = [0, 0xff, 0x7f, 1, random(256) as u8][random(5)];
        }
        if round % 5 == 0 {
            bytes.truncate(random(bytes.len()));
        }
        fs::write(&program, &bytes).unwrap();
        good += usize::from(look(&program)[1]);
    }
    // Some damage is of no consequence.
    assert!(good > 10, "{good}");
}
