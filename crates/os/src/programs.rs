// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! BPF programs as the kernel takes them: instructions, loaded for a place and attached there.

use libbpf_sys::{bpf_insn, bpf_prog_load_opts};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What a program is loaded as: the kernel's numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// `enum bpf_prog_type`
    pub program: u32,
    /// `enum bpf_attach_type`
    pub attach: u32,
    /// The type in the kernel's BTF that it is attached by; 0: none.
    pub btf_id: u32,
}

/// `libbpf_sys` returns a negative error number.
fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Loads a program.
pub fn load(kind: Kind, name: &str, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: kind.attach,
        attach_btf_id: kind.btf_id,
        ..Default::default()
    };
    // SAFETY: all pointers are valid for the call, and the lengths are theirs.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            kind.program,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    })
}

/// Attaches a program that was loaded for a type of BTF. It is detached when the link is closed.
pub fn attach(program: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: such a program needs no name.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}

/// Attaches a program to an event of perf.
pub fn attach_to_event(program: BorrowedFd, event: BorrowedFd) -> io::Result<OwnedFd> {
    let (program, event) = (program.as_raw_fd(), event.as_raw_fd());
    let kind = libbpf_sys::BPF_PERF_EVENT;
    // SAFETY: numbers only; without options.
    owned(unsafe { libbpf_sys::bpf_link_create(program, event, kind, std::ptr::null()) })
}

/// Whether the kernel takes a program at the entry of the function with this type, which then does
/// nothing.
pub fn try_fentry(btf_id: u32) -> io::Result<()> {
    /// `r0 = 0; exit`
    const NOTHING: [(u8, i32); 2] = [(0xb7, 0), (0x95, 0)];
    let nothing = NOTHING.map(|(code, imm)| bpf_insn { code, imm, ..Default::default() });
    let kind = Kind {
        program: libbpf_sys::BPF_PROG_TYPE_TRACING,
        attach: libbpf_sys::BPF_TRACE_FENTRY,
        btf_id,
    };
    attach(load(kind, "klogger_nothing", &nothing)?.as_fd()).map(drop)
}
