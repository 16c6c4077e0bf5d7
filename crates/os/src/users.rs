// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Users and their numbers.

use std::ffi::CString;
use std::ptr;

/// Longest entry of a user that is read.
const ENTRY_MAX: usize = 64 << 10;

/// The number of the user with this name; `None` if there is none.
pub fn id_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut texts = vec![0; ENTRY_MAX];
    let mut found = ptr::null_mut();
    // SAFETY: a struct of numbers and pointers, for which zeros are a valid value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a NUL; the call writes to the others, which outlive it.
    let code = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            texts.as_mut_ptr(),
            texts.len(),
            &raw mut found,
        )
    };
    (code == 0 && !found.is_null()).then_some(entry.pw_uid)
}

/// Whether the process has the rights of another user than the one who started it.
pub fn has_raised_rights() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_0_and_nobody_has_an_impossible_name() {
        assert_eq!(id_of("root"), Some(0));
        assert_eq!((id_of("no:such"), id_of(""), id_of("a\0b")), (None, None, None));
    }
}
