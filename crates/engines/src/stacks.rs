// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Kernel stacks: the table in which an engine keeps them, and how text for the log,
//! with the names of functions.

use klogger_log::symbols::Symbols;
use std::fmt::Write;

/// The kernel stacks that events have the numbers of.
pub trait StackTable {
    /// The number of each, and its addresses, the innermost first. Only after the probes are
    /// detached.
    fn read(&self) -> Vec<(u32, Vec<u64>)>;

    /// How many stacks got no number.
    fn unnumbered(&self) -> Unnumbered;
}

/// Stacks without a number, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unnumbered {
    /// No slot of the table was free.
    pub no_slot: u64,
    /// The kernel could not walk them.
    pub not_walked: u64,
}

/// Frames of the tracing itself, between the attach point and the probe.
const TRACING: [&[u8]; 6] = [
    b"bpf_prog_",
    b"bpf_trampoline_",
    b"bpf_trace_run",
    b"__bpf_trace_",
    b"__traceiter_",
    b"klogger_",
];

/// A line `NUMBER FRAME FRAME ...` for each stack.
pub fn lines(stacks: &[(u32, Vec<u64>)], symbols: &Symbols) -> String {
    let mut text = String::new();
    for (number, addresses) in stacks {
        let _ = write!(text, "{number}");
        let own = addresses.iter().take_while(|a| is_tracing(**a, symbols)).count();
        addresses[own..].iter().for_each(|a| frame(&mut text, *a, symbols));
        text.push('\n');
    }
    text
}

/// An address is a return address. The call before it may be the last instruction of its function.
fn find(address: u64, symbols: &Symbols) -> Option<(&[u8], u64)> {
    let (name, offset) = symbols.find(address.saturating_sub(1))?;
    Some((name, offset + 1))
}

fn is_tracing(address: u64, symbols: &Symbols) -> bool {
    find(address, symbols).is_some_and(|(name, _)| TRACING.iter().any(|t| name.starts_with(t)))
}

fn frame(text: &mut String, address: u64, symbols: &Symbols) {
    let _ = match find(address, symbols) {
        Some((name, offset)) => write!(text, " {}+{offset:#x}", String::from_utf8_lossy(name)),
        None => write!(text, " {address:x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_tracing_are_left_out() {
        let symbols = Symbols::new(
            b"1000 take\n2000 lock\n3000 __traceiter_contention_begin\n4000 bpf_trace_run2\n5000 \
              bpf_prog_1_x\n"
                .to_vec(),
        );
        let stacks = [(3, vec![0x5001, 0x4002, 0x3004, 0x2010, 0x2000]), (9, vec![0x10, 0x1001])];
        // The call before 0x2000 is the last instruction of `take`.
        assert_eq!(lines(&stacks, &symbols), "3 lock+0x10 take+0x1000\n9 10 take+0x1\n");
    }
}
