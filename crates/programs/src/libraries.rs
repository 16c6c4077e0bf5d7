// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds libraries as the dynamic loader does: in the folders that a program or the environment
//! names, in the loader's cache, in the default folders; or among those that a process has mapped.

use crate::elf::{Elf, Named, text_at};
use elf::abi;
use klogger_codegen::Refusal;
use klogger_os::maps::{self, Line};
use klogger_os::{answers, files, missed};
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CACHE: &str = "/etc/ld.so.cache";
const FOLDERS: [&str; 7] = [
    #[cfg(target_arch = "x86_64")]
    "/lib/x86_64-linux-gnu",
    #[cfg(not(target_arch = "x86_64"))]
    "/lib/aarch64-linux-gnu",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(not(target_arch = "x86_64"))]
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// Whether a name without a folder is that of a library.
pub fn is_library(name: &str) -> bool {
    name.starts_with("lib") || name.ends_with(".so") || name.contains(".so.")
}

/// Whether a file has the name that a schema gives: `libc` is `libc.so.6`, and was `libc-2.30.so`.
fn is_called(file: &str, name: &str) -> bool {
    if file == name {
        return true;
    }
    let Some(rest) = file.strip_prefix(name) else { return false };
    let versioned =
        || rest.strip_prefix('-').is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
    !name.contains(".so") && (rest == ".so" || rest.starts_with(".so.") || versioned())
        || name.contains(".so") && rest.starts_with('.')
}

/// The path of a library. `program`: it looks for it, and may say where.
pub fn find(name: &str, root: &Path, program: Option<&Path>) -> Result<PathBuf, Refusal> {
    let own = program.map(folders_of).unwrap_or_default();
    if let Some(path) = in_folders(name, root, &own)? {
        return Ok(path);
    }
    if let Some(path) = in_cache(name, root)? {
        return Ok(path);
    }
    let default: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    in_folders(name, root, &default)?.ok_or_else(|| {
        Refusal::of_this_kernel(
            format!("there is no library '{name}'"),
            Some("the folders of the dynamic loader have none of this name; write its path".into()),
        )
    })
}

/// Libraries of the same name for other machines are passed over.
fn is_usable(root: &Path, path: &Path) -> bool {
    let file = files::look_at(root).and_then(|root| answers::open_below(&root, path));
    file.is_ok_and(|file| file.metadata().is_ok_and(|m| m.is_file()) && Elf::open(file).is_ok())
}

fn in_folders(name: &str, root: &Path, folders: &[PathBuf]) -> Result<Option<PathBuf>, Refusal> {
    for folder in folders {
        let names = files::look_at(root).and_then(|root| answers::names_below(&root, folder));
        let names = missed::noting_unless_gone(&format!("the folder {}", folder.display()), names);
        let names = names.into_iter().flatten().filter_map(|name| name.into_string().ok());
        let found = names.filter(|file| is_called(file, name)).map(|file| folder.join(file));
        if let Some(path) = one_of(name, found.filter(|path| is_usable(root, path)).collect())? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Of links to one file, the first; of different files, none.
fn one_of(name: &str, mut paths: Vec<PathBuf>) -> Result<Option<PathBuf>, Refusal> {
    paths.sort();
    let whole: BTreeSet<PathBuf> =
        paths.iter().map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect();
    let exact = paths.iter().find(|path| path.file_name().is_some_and(|f| f == name));
    if whole.len() <= 1 || exact.is_some() {
        return Ok(exact.or(paths.first()).cloned());
    }
    let names: Vec<String> = paths
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    Err(Refusal::of_this_kernel(
        format!("there are several libraries '{name}'"),
        Some(format!("write one of: {}", names.join(", "))),
    ))
}

/// In the cache that ldconfig makes: names, each with a path.
fn in_cache(name: &str, root: &Path) -> Result<Option<PathBuf>, Refusal> {
    let file = files::look_at(root).and_then(|root| answers::open_below(&root, Path::new(CACHE)));
    let Ok(bytes) = file.and_then(read_cache) else { return Ok(None) };
    let entries = cache_entries(&bytes);
    let called = entries.into_iter().filter(|(soname, _)| is_called(soname, name));
    let mut sonames = BTreeSet::new();
    let mut found = Vec::new();
    for (soname, path) in called {
        // The first one of a name is the one that the loader takes.
        if !sonames.contains(&soname) && is_usable(root, &path) {
            sonames.insert(soname);
            found.push(path);
        }
    }
    one_of(name, found)
}

fn read_cache(mut file: File) -> io::Result<Vec<u8>> {
    /// Some thousand libraries take less than 1 MiB.
    const MOST: u64 = 64 << 20;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&mut file, MOST), &mut bytes)?;
    Ok(bytes)
}

/// The format of glibc since 2.2: a header of 48 bytes, then entries of 24 bytes, whose texts are
/// at offsets from the header. An older format may precede it.
fn cache_entries(bytes: &[u8]) -> Vec<(String, PathBuf)> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let cache = &bytes[start..];
    let word = |at: usize| {
        let bytes = cache.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|bytes| u32::from_le_bytes(*bytes))
    };
    let count = (word(MAGIC.len()).unwrap_or(0) as usize).min(cache.len() / ENTRY);
    let text = |at: Option<u32>| text_at(cache, at.unwrap_or(u32::MAX));
    let entry = |n: usize| {
        let at = HEADER + n * ENTRY;
        let (name, path) = (text(word(at + 4)), text(word(at + 8)));
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        (!name.is_empty()).then(|| (String::from_utf8_lossy(name).into_owned(), path))
    };
    (0..count).filter_map(entry).collect()
}

/// The folders that the environment and a program name.
fn folders_of(program: &Path) -> Vec<PathBuf> {
    let environment = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&environment).collect();
    let named = run_paths(program).unwrap_or_default();
    let origin = || fs::canonicalize(program).ok().and_then(|p| Some(p.parent()?.to_path_buf()));
    let origin = if named.is_empty() { None } else { origin() };
    for path in named {
        let origin = origin.as_deref().unwrap_or(Path::new("/")).to_string_lossy();
        folders.push(path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into());
    }
    folders.retain(|folder| folder.is_absolute());
    folders
}

/// DT_RPATH and DT_RUNPATH.
fn run_paths(program: &Path) -> Option<Vec<String>> {
    let elf = Elf::open(answers::open_link(program).ok()?).ok()?;
    let Named { entries, names } = elf.with_names(abi::SHT_DYNAMIC).ok()??;
    let paths = entries.chunks_exact(16).filter_map(|entry| {
        let word = |at: usize| Some(u64::from_le_bytes(*entry.get(at..)?.first_chunk()?));
        let tag = word(0)? as i64;
        (tag == abi::DT_RPATH || tag == abi::DT_RUNPATH).then(|| word(8)).flatten()
    });
    let texts = paths.filter_map(|at| {
        Some(String::from_utf8_lossy(text_at(&names, u32::try_from(at).ok()?)).into_owned())
    });
    Some(texts.flat_map(|t| t.split(':').map(str::to_string).collect::<Vec<_>>()).collect())
}

/// A library that a process has mapped: exactly that file, even if its path leads to another one by
/// now.
pub fn mapped(pid: u32, name: &str) -> io::Result<Option<(String, File)>> {
    for line in maps::text_of(pid)?.lines().filter_map(Line::read) {
        let Some(path) = line.file_path() else { continue };
        let file = Path::new(path).file_name().map(|f| f.to_string_lossy().into_owned());
        if file.is_some_and(|file| is_called(&file, name)) {
            let link = maps::link_to(pid, line.start, line.end);
            let file = answers::open_link(Path::new(&link))?;
            return Ok(Some((path.to_string(), file)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries() {
        for (file, name) in [
            ("libc.so.6", "libc"),
            ("libc-2.30.so", "libc"),
            ("libc.so.6", "libc.so.6"),
            ("libz.so.1.2.3", "libz.so.1"),
            ("libx.so", "libx"),
        ] {
            assert!(is_called(file, name), "{file} {name}");
        }
        for (file, name) in
            [("libcap.so.2", "libc"), ("libc.so.6", "libc.so.5"), ("libc-client.so", "libc")]
        {
            assert!(!is_called(file, name), "{file} {name}");
        }
        assert!(is_library("libc") && is_library("x.so.1") && !is_library("bash"));
    }

    #[test]
    fn the_loader_s_cache() {
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.resize(48, 0);
        let texts = 48 + 24;
        for word in [0x303u32, texts, texts + 8, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"libx.so\0/lib/libx.so\0");
        let entries = vec![("libx.so".to_string(), PathBuf::from("/lib/libx.so"))];
        assert_eq!(cache_entries(&bytes), entries);
        let older = [b"ld.so-1.7.0\0\0\0\0\0".as_slice(), &bytes].concat();
        assert_eq!(cache_entries(&older), entries);
        // Offsets beyond the end, and counts that cannot be.
        (20..bytes.len()).for_each(|end| drop(cache_entries(&bytes[..end])));
        bytes[20..24].fill(0xff);
        assert!(cache_entries(&bytes).len() <= bytes.len() / 24);
    }

    #[test]
    fn the_c_library_of_this_machine_and_of_this_process() {
        let found = find("libc", Path::new("/"), None).unwrap();
        assert!(found.file_name().unwrap().to_string_lossy().starts_with("libc"), "{found:?}");
        let message = find("libnone-such", Path::new("/"), None).unwrap_err().message;
        assert_eq!(message, "there is no library 'libnone-such'");
    }

    #[test]
    fn a_library_beside_the_program_that_names_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (program, library) = (folder.path().join("p"), folder.path().join("liby.so.1"));
        let source = folder.path().join("p.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let build = |to: &Path, flags: &[&str]| {
            let mut cc = std::process::Command::new("cc");
            assert!(cc.arg("-o").arg(to).arg(&source).args(flags).status().unwrap().success());
        };
        build(&program, &["-Wl,-rpath,$ORIGIN"]);
        build(&library, &["-shared", "-fPIC"]);
        assert_eq!(find("liby", Path::new("/"), Some(&program)).unwrap(), library);
        assert!(find("liby", Path::new("/"), None).is_err());
        fs::copy(&library, folder.path().join("liby.so.2")).unwrap();
        let refusal = find("liby", Path::new("/"), Some(&program)).unwrap_err();
        assert_eq!(refusal.message, "there are several libraries 'liby'");
        assert_eq!(refusal.help.as_deref(), Some("write one of: liby.so.1, liby.so.2"));
        assert_eq!(find("liby.so.1", Path::new("/"), Some(&program)).unwrap(), library);
    }
}
