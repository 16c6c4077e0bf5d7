// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! BPF programs as the kernel takes them: instructions, loaded for a place and attached there.

use libbpf_sys::{bpf_btf_info, bpf_insn, bpf_prog_load_opts};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// What a program is loaded as: the kernel's numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// `enum bpf_prog_type`
    pub program: u32,
    /// `enum bpf_attach_type`
    pub attach: u32,
    /// The type in the kernel's BTF that it is attached by; 0: none.
    pub btf_id: u32,
    /// The BTF of the module that has this type; 0: that of the kernel itself. The descriptor is
    /// another's.
    pub btf: RawFd,
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
        attach_btf_obj_fd: kind.btf as u32,
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

/// The BTF of a module that the kernel has loaded.
pub fn btf_of_module(name: &str) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: a number, and a pointer to another that is valid for the call.
        let result = unsafe { libbpf_sys::bpf_btf_get_next_id(id, &raw mut id) };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: a number only. What has been unloaded meanwhile is not the one.
        let Ok(btf) = owned(unsafe { libbpf_sys::bpf_btf_get_fd_by_id(id) }) else { continue };
        if is_of_module(btf.as_fd(), name)? {
            return Ok(btf);
        }
    }
}

fn is_of_module(btf: BorrowedFd, name: &str) -> io::Result<bool> {
    let mut text = [0u8; 64];
    let mut info = bpf_btf_info {
        name: text.as_mut_ptr() as u64,
        name_len: text.len() as u32,
        ..Default::default()
    };
    let mut size = size_of::<bpf_btf_info>() as u32;
    // SAFETY: all pointers are valid for the call, and the lengths are theirs.
    let result = unsafe {
        libbpf_sys::bpf_btf_get_info_by_fd(btf.as_raw_fd(), &raw mut info, &raw mut size)
    };
    // A longer name is not that of a module.
    if result < 0 && -result != libc::ENOSPC {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Ok(info.kernel_btf != 0 && text.to_bytes() == name.as_bytes())
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
        btf: 0,
    };
    attach(load(kind, "klogger_nothing", &nothing)?.as_fd()).map(drop)
}
