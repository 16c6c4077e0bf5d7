// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The memory of other processes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Words of it, from this address on. A page of a file is read from its file system if it is not
/// there, which may not answer.
pub fn words<const N: usize>(pid: u32, address: u64) -> io::Result<[u64; N]> {
    let file = File::open(format!("/proc/{pid}/mem"))?;
    let mut words = [0; N];
    for (n, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, address.wrapping_add(8 * n as u64))?;
        *word = u64::from_ne_bytes(bytes);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_memory_is_what_it_is() {
        let numbers = [3, 1 << 63, 5];
        let address = numbers.as_ptr() as u64;
        assert_eq!(words::<3>(std::process::id(), address).unwrap(), numbers);
        assert_eq!(words::<1>(std::process::id(), address + 8).unwrap(), [1 << 63]);
        assert!(words::<1>(std::process::id(), 8).is_err());
        assert!(words::<1>(std::process::id(), u64::MAX).is_err());
    }
}
