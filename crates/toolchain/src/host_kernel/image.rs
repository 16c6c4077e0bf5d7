// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The types of a kernel that is not running here, from its image, in any of the common packings.
//! Images are untrusted.

use elf::ElfBytes;
use elf::endian::AnyEndian;
use klogger_codegen::KernelTypes;
use klogger_os::Error;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Largest file in bytes: a vmlinux with all debug information.
const FILE_MAX: u64 = 2 << 30;
const BTF_MAGIC: [u8; 2] = [0x9f, 0xeb];
const ELF_MAGIC: &[u8] = b"\x7fELF";
const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
/// Magic bytes of the packed kernel in an image, and the program that unpacks it.
const UNPACKERS: &[(&[u8], &[&str])] = &[
    (b"\x1f\x8b", &["gzip", "-dc"]),
    (b"\xfd7zXZ\0", &["xz", "-dc"]),
    (b"\x28\xb5\x2f\xfd", &["zstd", "-dcq"]),
    (b"\x02\x21\x4c\x18", &["lz4", "-dc"]),
    (b"BZh", &["bzip2", "-dc"]),
];

/// The types of a vmlinux, an x86 image (bzImage, vmlinuz), a Debian package with one, or a file of
/// raw BTF.
pub fn types_of(path: &Path) -> Result<KernelTypes, Error> {
    let name = path.display();
    let cannot = |e| Error::new(format!("{name}: cannot be read: {e}"));
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(FILE_MAX).read_to_end(&mut bytes)).map_err(cannot)?;
    let found = match bytes.starts_with(ARCHIVE_MAGIC) {
        true => packaged(path).and_then(|image| btf(&image)),
        false => btf(&bytes),
    };
    let found = found.and_then(|btf| KernelTypes::new(&btf).map_err(|e| e.to_string()));
    found.map_err(|why| {
        Error::new(format!("{name}: {why}")).help(
            "name a vmlinux, a bzImage, a Debian package with one (linux-image, linux-binary), or \
             a file of raw BTF",
        )
    })
}

/// The type information in a kernel, packed or not.
fn btf(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if bytes.starts_with(&BTF_MAGIC) {
        return Ok(bytes.to_vec());
    }
    if bytes.starts_with(ELF_MAGIC) {
        return section(bytes);
    }
    section(&unpack(payload(bytes).ok_or("neither a kernel nor its type information")?)?)
}

fn section(elf: &[u8]) -> Result<Vec<u8>, String> {
    let damaged = |e| format!("its ELF file is damaged: {e}");
    let file = ElfBytes::<AnyEndian>::minimal_parse(elf).map_err(damaged)?;
    let header = file.section_header_by_name(".BTF").map_err(damaged)?;
    let header =
        header.ok_or("this kernel was built without type information (CONFIG_DEBUG_INFO_BTF)")?;
    Ok(file.section_data(&header).map_err(damaged)?.0.to_vec())
}

/// The packed kernel, at the position given in the header of the boot protocol (from 2.08 on).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match image[0x1f1] {
        0 => 4,
        given => usize::from(given),
    };
    let start = (sectors + 1) * 512 + word(0x248)?;
    image.get(start..start.checked_add(word(0x24c)?)?)
}

/// Unpacks with the program for the format. It may complain about the 4 bytes that the kernel's
/// build appends.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let known = UNPACKERS.iter().find(|(magic, _)| packed.starts_with(magic));
    let (_, words) = known.ok_or("its kernel is packed in an unknown format")?;
    let cannot = |e| format!("cannot run {}, which its kernel is packed with: {e}", words[0]);
    let mut input = tempfile::tempfile().map_err(cannot)?;
    input.write_all(packed).and_then(|()| input.rewind()).map_err(cannot)?;
    let kernel = output(Command::new(words[0]).args(&words[1..]).stdin(input)).map_err(cannot)?;
    if kernel.starts_with(ELF_MAGIC) {
        Ok(kernel)
    } else {
        Err(format!("{} could not unpack its kernel", words[0]))
    }
}

/// The image in a Debian package.
fn packaged(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |e| format!("cannot be unpacked: {e}");
    // dpkg-deb may fail with a broken pipe, because reading stops after the image.
    let mut packed = Command::new("dpkg-deb");
    packed
        .arg("--fsys-tarfile")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut archive = packed.spawn().map_err(cannot)?;
    let tar = archive.stdout.take().map_or(Stdio::null(), Stdio::from);
    let image = output(
        Command::new("tar").args(["-xO", "--wildcards", "*/vmlinuz-*", "*/vmlinuz"]).stdin(tar),
    );
    let _ = archive.wait();
    match image.map_err(cannot)? {
        image if image.is_empty() => Err("there is no kernel image in this package".into()),
        image => Ok(image),
    }
}

/// The output of a program, whatever its exit status.
fn output(command: &mut Command) -> std::io::Result<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut bytes = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(FILE_MAX).read_to_end(&mut bytes)?;
    }
    child.wait()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of one sector more than its header, whose payload is `packed`.
    fn image(packed: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 1024 + 512];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x248..0x24c].copy_from_slice(&512u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        bytes.extend(packed);
        bytes
    }

    #[test]
    fn the_packed_kernel_is_where_the_header_says() {
        assert_eq!(payload(&image(b"packed")), Some(&b"packed"[..]));
        assert_eq!(payload(b"short"), None);
        let mut far = image(b"packed");
        far[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&far), None);
    }

    #[test]
    fn a_file_that_is_not_a_kernel_is_refused() {
        let why = |bytes: &[u8]| btf(bytes).unwrap_err();
        assert_eq!(why(b""), "neither a kernel nor its type information");
        assert_eq!(why(&image(b"nothing known")), "its kernel is packed in an unknown format");
        assert_eq!(why(&image(b"\x1f\x8bnonsense")), "gzip could not unpack its kernel");
        assert!(why(b"\x7fELF and no more").starts_with("its ELF file is damaged: "));
        assert_eq!(btf(&[0x9f, 0xeb, 1]), Ok(vec![0x9f, 0xeb, 1]));
    }
}
