// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Integrates klogger into a kernel source tree: adds two folders, and one line to each of three
//! files.

mod files;
mod tracepoints;

pub use files::{faults, files};

use klogger_os::Error;
use klogger_os::files::{folder_of, unless_absent};
use klogger_os::outputs::{Folder, Old, Partial};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// The oldest kernel whose Kbuild has the target `prepare`.
const OLDEST: (u32, u32) = (6, 1);

/// klogger's own folders. All files in them are klogger's.
const OWN: [&str; 2] = ["include/klogger", "kernel/klogger"];
/// Copies of the schemata, from which the generated files were made.
const COPIES: &str = "kernel/klogger/schemata";

/// A line that is inserted after the first one that begins with `after`.
struct Insertion {
    file: &'static str,
    after: &'static str,
    line: &'static str,
}

const INSERTIONS: [Insertion; 3] = [
    Insertion {
        file: "Kbuild",
        after: "PHONY += prepare",
        line: "include $(srctree)/kernel/klogger/Kbuild.prepare",
    },
    Insertion {
        file: "kernel/Makefile",
        after: "obj-y += sched/",
        line: "obj-$(CONFIG_KLOGGER) += klogger/",
    },
    Insertion {
        file: "lib/Kconfig.debug",
        after: "source \"kernel/trace/Kconfig\"",
        line: "source \"kernel/klogger/Kconfig\"",
    },
];

/// A kernel source tree that klogger can be integrated into.
pub struct Tree {
    dir: PathBuf,
    /// `6.1.192`
    pub version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Add,
    Change,
    Remove,
}

/// A change to one file.
#[derive(Debug)]
pub struct Change {
    pub what: What,
    /// Path from the top of the tree.
    pub path: String,
    /// How many lines are added to, or removed from, a file that is not klogger's.
    pub lines: usize,
    text: String,
}

impl Tree {
    /// Refuses folders that are not a kernel tree, and trees with an unknown layout.
    pub fn open(dir: &Path) -> Result<Tree, Error> {
        let shown = dir.display();
        let no_tree = || {
            Error::new(format!("{shown} is not a kernel source tree"))
                .help("name the folder with the kernel's Makefile, Kbuild and MAINTAINERS")
        };
        let makefile = fs::read_to_string(dir.join("Makefile")).map_err(|_| no_tree())?;
        let (version, numbers) = version(&makefile).ok_or_else(no_tree)?;
        if numbers < OLDEST {
            return Err(Error::new(format!("{shown} is Linux {version}, which is too old")).help(
                format!("klogger can be integrated into kernels from {}.{} on", OLDEST.0, OLDEST.1),
            ));
        }
        let tree = Tree { dir: dir.to_path_buf(), version };
        for insertion in &INSERTIONS {
            let text = tree.read(insertion.file)?.ok_or_else(no_tree)?;
            if !text.lines().any(|l| insertion.is_behind(l)) {
                return Err(Error::new(format!(
                    "klogger does not know the layout of Linux {}: {shown}/{} has no line that \
                     begins with '{}'",
                    tree.version, insertion.file, insertion.after
                ))
                .help("a newer klogger may know it"));
            }
        }
        Ok(tree)
    }

    /// The schemata at the top of the tree, by file name.
    pub fn schemata(&self) -> Result<Vec<String>, Error> {
        let cannot = |e| Error::new(format!("cannot read the folder {}: {e}", self.dir.display()));
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_schema(&name)
                && unless_absent(entry.path().metadata())
                    .map_err(cannot)?
                    .is_some_and(|m| m.is_file())
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The changes that give the tree these files of klogger, by path, and the lines in other
    /// files.
    pub fn plan(&self, own: &BTreeMap<String, String>) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        for (path, text) in own {
            let what = match self.read(path)? {
                Some(old) if old == *text => continue,
                Some(_) => What::Change,
                None => What::Add,
            };
            changes.push(Change { what, path: path.clone(), lines: 0, text: text.clone() });
        }
        for path in self.made_before()?.into_iter().filter(|p| !own.contains_key(p)) {
            changes.push(Change { what: What::Remove, path, lines: 0, text: String::new() });
        }
        for insertion in &INSERTIONS {
            self.edit(insertion, Insertion::into, &mut changes)?;
        }
        Ok(changes)
    }

    /// The changes that remove klogger. The lines come first, so that the tree can be built at any
    /// time.
    pub fn plan_removal(&self) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        for insertion in &INSERTIONS {
            self.edit(insertion, Insertion::out_of, &mut changes)?;
        }
        for path in OWN {
            let whole = self.dir.join(path);
            let cannot = |e| Error::new(format!("cannot look at {}: {e}", whole.display()));
            // It may be a link that leads nowhere.
            if unless_absent(whole.symlink_metadata()).map_err(cannot)?.is_none() {
                continue;
            }
            changes.push(Change {
                what: What::Remove,
                path: path.to_string(),
                lines: 0,
                text: String::new(),
            });
        }
        Ok(changes)
    }

    pub fn apply(&self, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            let path = self.dir.join(&change.path);
            let done = match change.what {
                What::Add | What::Change => write(&path, &change.text),
                What::Remove => remove(&path),
            };
            done.map_err(|e| {
                Error::new(format!("cannot change {}: {e}", path.display())).help(
                    "the tree is half changed: see to it that you may write there, and do \
                           the same again",
                )
            })?;
        }
        Ok(())
    }

    fn edit(
        &self,
        insertion: &Insertion,
        how: fn(&Insertion, &str) -> String,
        to: &mut Vec<Change>,
    ) -> Result<(), Error> {
        let old = self.read(insertion.file)?.unwrap_or_default();
        let text = how(insertion, &old);
        if text != old {
            to.push(Change { what: What::Change, path: insertion.file.into(), lines: 1, text });
        }
        Ok(())
    }

    /// Files that klogger generated, except headers of its runtime. They may be left from a schema
    /// that was removed.
    fn made_before(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for folder in [OWN[0], OWN[1], COPIES] {
            let entries = match fs::read_dir(self.dir.join(folder)) {
                Ok(entries) => entries,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => {
                    return Err(Error::new(format!(
                        "cannot read {}/{folder}: {e}",
                        self.dir.display()
                    )));
                }
            };
            let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|e| {
                Error::new(format!("cannot read {}/{folder}: {e}", self.dir.display()))
            })?;
            let names = entries.iter().map(|e| e.file_name().to_string_lossy().into_owned());
            // There may also be objects and NAME.mod.c, if the kernel is built in its source tree.
            let made = names.filter(|n| {
                folder == COPIES
                    || [".klogger.h", ".klogger.c", ".bench.c"].iter().any(|e| n.ends_with(e))
            });
            found.extend(made.map(|n| format!("{folder}/{n}")));
        }
        Ok(found)
    }

    fn read(&self, path: &str) -> Result<Option<String>, Error> {
        let path = self.dir.join(path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::new(format!("cannot read {}: {e}", path.display()))),
        }
    }
}

impl Insertion {
    fn is_behind(&self, line: &str) -> bool {
        line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(self.after)
    }

    fn into(&self, text: &str) -> String {
        if text.lines().any(|l| l == self.line) {
            return text.into();
        }
        let behind = text.lines().position(|l| self.is_behind(l));
        let lines = text.split_inclusive('\n').enumerate();
        lines
            .map(|(n, l)| if Some(n) == behind { format!("{l}{}\n", self.line) } else { l.into() })
            .collect()
    }

    fn out_of(&self, text: &str) -> String {
        text.split_inclusive('\n').filter(|l| l.trim_end() != self.line).collect()
    }
}

/// `.klogger.conf*` and `*.klogger`, except what editors and patches leave behind. update.sh has
/// the same rule.
fn is_schema(name: &str) -> bool {
    let leftover = ["~", ".orig", ".rej", ".swp"].iter().any(|end| name.ends_with(end));
    !leftover && (name.starts_with(".klogger.conf") || name.ends_with(".klogger"))
}

/// VERSION, PATCHLEVEL and SUBLEVEL of the top Makefile, as text and as numbers.
fn version(makefile: &str) -> Option<(String, (u32, u32))> {
    let value = |name: &str| {
        let line =
            makefile.lines().find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix('='))?;
        line.trim().parse::<u32>().ok()
    };
    let (major, minor, sub) = (value("VERSION")?, value("PATCHLEVEL")?, value("SUBLEVEL")?);
    Some((format!("{major}.{minor}.{sub}"), (major, minor)))
}

/// Replaces the file atomically, so that a concurrent build sees the old file or the new one. It
/// keeps its owner and its mode.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = Folder::make(folder_of(path))?;
    let name = path.file_name().unwrap_or_default();
    let Some(old) = folder.look(name)? else {
        return folder.write(name, 0o666, Old::Refuse, text.as_bytes());
    };
    if !old.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut new = Partial::beside(&folder, name, 0o600)?;
    new.file().write_all(text.as_bytes())?;
    let _ = fchown(new.file(), Some(old.uid()), Some(old.gid()));
    new.set_mode(old.mode() & 0o7777)?;
    new.complete_over(&old)
}

fn remove(path: &Path) -> std::io::Result<()> {
    let (folder, name) = Folder::of_name(path)?;
    match folder.look(&name)?.is_some_and(|found| found.is_dir()) {
        true => folder.remove_all(&name),
        false => folder.remove(&name),
    }
}

#[cfg(test)]
mod tests;
