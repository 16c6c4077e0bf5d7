// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Cgroups of both versions, and which threads are in them.

use super::mounts::{self, Mount};
use super::{Error, missed};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The kernel's number of it, unique in its hierarchy.
    pub id: u64,
    /// Its path from the root of its hierarchy, as in /proc/PID/cgroup: `/` or `/a/b`.
    pub path: String,
    /// Of a hierarchy of version 1: its controllers. None: version 2.
    pub controllers: Vec<String>,
}

/// The cgroup of a path in the file system, of one below the root of a hierarchy, or of a line of
/// /proc/PID/cgroup.
pub fn find(path: &str) -> Result<Cgroup, Error> {
    let info = fs::read_to_string(mounts::LIST).map_err(|e| {
        Error::new(format!("cannot read {}, which says where cgroups are: {e}", mounts::LIST))
            .help("mount /proc: mount -t proc proc /proc")
    })?;
    find_in(
        path,
        &mounts::of_list(&info).filter(|m| m.kind.starts_with("cgroup")).collect::<Vec<_>>(),
    )
}

/// `mounts`: of cgroups.
fn find_in(text: &str, mounts: &[Mount]) -> Result<Cgroup, Error> {
    if mounts.is_empty() {
        return Err(Error::new("no cgroups are mounted here")
            .help("mount them: mount -t cgroup2 none /sys/fs/cgroup"));
    }
    // What looks like a line of /proc/PID/cgroup may be a name as well.
    let (of, path) = line(text).map_or((None, text), |(of, path)| (Some(of), path));
    let named = in_hierarchies(path, of, mounts)?;
    let found = match (&named[..], of) {
        ([], Some(_)) => in_hierarchies(text, None, mounts)?,
        _ => named,
    };
    match &found[..] {
        [] => Err(missing(text, mounts)),
        [one] => one.followed(),
        several => match several.iter().find(|cgroup| cgroup.controllers.is_empty()) {
            Some(cgroup) => Ok(cgroup.clone()),
            None => {
                let lines: Vec<String> = several.iter().map(Cgroup::text).collect();
                let lines = lines.join(", ");
                Err(Error::new(format!(
                    "{text} is a cgroup of several hierarchies, whose members \
                                        may differ"
                ))
                .help(format!("write the one that you mean: {lines}")))
            }
        },
    }
}

/// A line of /proc/PID/cgroup, or what `Cgroup::text` gives: the controllers, which are empty for
/// version 2, and the path.
fn line(text: &str) -> Option<(&str, &str)> {
    let at = text.find(":/")?;
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let of = &text[..at];
    let of = of.split_once(':').filter(|(number, _)| is_number(number)).map_or(of, |(_, of)| of);
    Some((of, &text[at + 1..]))
}

/// The groups of a path in all hierarchies, or in one, each once. A folder that is named as such is
/// the only one.
fn in_hierarchies(path: &str, of: Option<&str>, mounts: &[Mount]) -> Result<Vec<Cgroup>, Error> {
    let fits = |mount: &&Mount| of.is_none_or(|of| mount.has(of));
    let folder = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.is_dir() => fs::canonicalize(path).map(Some),
        Ok(_) => Ok(None),
        Err(e) if is_missing(&e) => Ok(None),
        Err(e) => Err(e),
    };
    let said = |path: &Path, e| Error::new(format!("cannot look at {}: {e}", path.display()));
    let mut found: Vec<Cgroup> = Vec::new();
    if of.is_none() {
        let path = Path::new(path);
        if let Some(folder) = folder(path).map_err(|e| said(path, e))?
            && let Some(mount) = mounts
                .iter()
                .filter(|m| folder.starts_with(&m.at))
                .max_by_key(|m| m.at.as_os_str().len())
        {
            return Ok(vec![mount.group(&folder)?]);
        }
    }
    for mount in mounts.iter().filter(fits) {
        for below in mount.below(path) {
            let Some(folder) = folder(&below).map_err(|e| said(&below, e))? else { continue };
            // Not what a `..` leads to.
            if folder.starts_with(&mount.at) {
                let group = mount.group(&folder)?;
                if !found.contains(&group) {
                    found.push(group);
                }
                break;
            }
        }
    }
    Ok(found)
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

fn missing(text: &str, mounts: &[Mount]) -> Error {
    let of_v2 = mounts.iter().find(|mount| mount.kind == "cgroup2");
    let place = of_v2.or(mounts.first()).map_or(Path::new("/sys/fs/cgroup"), |m| &m.at);
    let error = match Path::new(text).is_dir() {
        true => Error::new(format!("{text} is not a cgroup")),
        false => Error::new(format!("there is no cgroup {text}")),
    };
    error.help(format!("'ls {}' shows those there are", place.display()))
}

impl Mount {
    /// The controllers of a hierarchy of version 1, and its name if it has one: `name=systemd`.
    fn controllers(&self) -> Vec<String> {
        const OF_FILE_SYSTEM: [&str; 8] = [
            "rw",
            "ro",
            "xattr",
            "noprefix",
            "clone_children",
            "cpuset_v2_mode",
            "favordynmods",
            "seclabel",
        ];
        // Others are release_agent=PATH, and a label of SELinux in quotes, with commas.
        let of_file_system = |option: &&str| {
            !OF_FILE_SYSTEM.contains(option)
                && (option.starts_with("name=") || !option.contains(['=', '"']))
        };
        match self.kind.as_str() {
            "cgroup2" => Vec::new(),
            _ => self.options.split(',').filter(of_file_system).map(String::from).collect(),
        }
    }

    /// Whether it has the controllers of a line of /proc/PID/cgroup.
    fn has(&self, of: &str) -> bool {
        let own = self.controllers();
        match of {
            "" => self.kind == "cgroup2",
            _ => of.split(',').all(|name| own.iter().any(|own| own == name)),
        }
    }

    /// Where a path below the root of the hierarchy may be: what is mounted is the whole of it or a
    /// part, to which the path is relative, or not.
    fn below(&self, path: &str) -> Vec<PathBuf> {
        let whole = self.at.join(path.trim_start_matches('/'));
        let part = Path::new(path).strip_prefix(&self.root).ok();
        let part = part.filter(|_| self.root != "/").map(|part| self.at.join(part));
        part.into_iter().chain([whole]).collect()
    }

    fn group(&self, folder: &Path) -> Result<Cgroup, Error> {
        let shown = folder.display();
        let id =
            fs::metadata(folder).map_err(|e| Error::new(format!("cannot look at {shown}: {e}")))?;
        let below = folder.strip_prefix(&self.at).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| Error::new(format!("the name of {shown} is not UTF-8")))?;
        let path = joined(&self.root, below);
        Ok(Cgroup { id: id.ino(), path, controllers: self.controllers() })
    }
}

fn joined(root: &str, below: &str) -> String {
    match (root.trim_end_matches('/'), below) {
        ("", "") => "/".into(),
        (root, "") => root.into(),
        (root, below) => format!("{root}/{below}"),
    }
}

impl Cgroup {
    /// As /proc/PID/cgroup has it, without the number of the hierarchy: `/a/b`, or of version 1
    /// `cpu,cpuacct:/a/b`.
    pub fn text(&self) -> String {
        match &self.controllers[..] {
            [] => self.path.clone(),
            controllers => format!("{}:{}", controllers.join(","), self.path),
        }
    }

    /// Itself, if the kernel says of a thread whether it is in a group of this hierarchy.
    fn followed(&self) -> Result<Cgroup, Error> {
        let is_named = |name: &String| name.starts_with("name=");
        if self.controllers.is_empty() || !self.controllers.iter().all(is_named) {
            return Ok(self.clone());
        }
        let path = &self.path;
        Err(Error::new(format!(
            "{} is in a hierarchy without controllers, whose threads klogger \
                                cannot follow",
            self.text()
        ))
        .help(format!(
            "name the group in another hierarchy (0::{path} or memory:{path}), if it \
                           is there, or its processes: -p $(paste -sd, FOLDER/cgroup.procs)"
        )))
    }

    /// Whether a thread is in it, or in one of its descendants.
    pub fn has(&self, tid: u32) -> bool {
        let list = fs::read_to_string(format!("/proc/{tid}/cgroup"));
        let list = missed::noting_unless_gone("/proc/PID/cgroup", list).unwrap_or_default();
        self.is_of(&list)
    }

    /// Whether a thread with this file is in it.
    fn is_of(&self, list: &str) -> bool {
        let is_same = |of: &str| match &self.controllers[..] {
            [] => of.is_empty(),
            own => of.split(',').any(|name| own.iter().any(|own| own == name)),
        };
        let path = |line: &str| {
            let (_, line) = line.split_once(':')?;
            let (of, path) = line.split_once(':')?;
            is_same(of).then(|| self.has_path(path))
        };
        list.lines().find_map(path).unwrap_or(false)
    }

    fn has_path(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_and_paths_are_joined() {
        assert_eq!((joined("/", ""), joined("/", "x/y")), ("/".into(), "/x/y".into()));
        assert_eq!((joined("/a", ""), joined("/a", "x")), ("/a".into(), "/a/x".into()));
    }

    #[test]
    fn descendants_belong_to_a_cgroup() {
        let cgroup = |path: &str| Cgroup { id: 1, path: path.into(), controllers: Vec::new() };
        let has = |path: &str, other: &str| cgroup(path).has_path(other);
        assert!(has("/", "/") && has("/", "/a") && has("/a", "/a") && has("/a", "/a/b"));
        assert!(!has("/a", "/") && !has("/a", "/ab") && !has("/a/b", "/a"));
    }

    fn of(kind: &str, at: &Path, root: &str, options: &str) -> Mount {
        let (root, kind, options) = (root.into(), kind.into(), options.into());
        Mount { at: at.into(), root, kind, options }
    }

    #[test]
    fn a_group_is_found_by_all_that_names_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for folder in ["v2/a/b", "memory/a/m", "cpu/m", "cpu/both", "memory/both", "named/s"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let mounts = [
            of("cgroup2", &at("v2"), "/", "rw,nsdelegate"),
            of("cgroup", &at("memory"), "/box", "rw,memory"),
            of("cgroup", &at("cpu"), "/", "rw,cpu,cpuacct"),
            of("cgroup", &at("named"), "/", "rw,xattr,name=systemd"),
        ];
        let found = |text: &str| find_in(text, &mounts).map(|cgroup| cgroup.text());
        let folder = |name: &str| at(name).to_str().unwrap().to_owned();
        for (text, expected) in [
            (folder("v2/a/b").as_str(), "/a/b"),
            ("a/b", "/a/b"),
            ("0::/a/b", "/a/b"),
            ("a", "/a"), // in memory as well: version 2 is preferred
            (&folder("memory/a/m"), "memory:/box/a/m"),
            ("a/m", "memory:/box/a/m"),
            ("/box/a/m", "memory:/box/a/m"),
            ("4:memory:/box/a/m", "memory:/box/a/m"),
            ("memory:/both", "memory:/box/both"),
            ("m", "cpu,cpuacct:/m"),
            ("2:cpu,cpuacct:/m", "cpu,cpuacct:/m"),
            ("cpuacct:/", "cpu,cpuacct:/"),
            (&folder("cpu"), "cpu,cpuacct:/"),
        ] {
            assert_eq!(found(text).expect(text), expected, "{text}");
            assert_eq!(found(&found(text).unwrap()).unwrap(), expected, "{text}");
        }
        let refused = |text: &str| {
            let error = found(text).unwrap_err();
            format!("{}\n{}", error.message, error.help.unwrap_or_default())
        };
        assert!(refused("both").contains("memory:/box/both, cpu,cpuacct:/both"));
        assert!(refused("nothing").contains("there is no cgroup nothing\n'ls "));
        assert!(refused("memory:/m").contains("there is no cgroup memory:/m"));
        assert!(refused(place.to_str().unwrap()).contains("is not a cgroup"));
        assert!(refused("..").contains(".. is not a cgroup"));
        let named = refused("name=systemd:/s");
        assert!(named.contains("without controllers") && named.contains("0::/s"), "{named}");
        assert!(find_in("a", &[]).unwrap_err().message.contains("no cgroups are mounted"));
    }

    #[test]
    fn a_thread_is_in_the_group_of_the_same_hierarchy() {
        let list = "9:cpu,cpuacct:/c/d\n8:memory:/m:x\n1:name=systemd:/\n0::/a/b\n";
        let has = |path: &str, of: &[&str]| {
            let controllers = of.iter().map(|name| (*name).into()).collect();
            Cgroup { id: 1, path: path.into(), controllers }.is_of(list)
        };
        assert!(has("/a", &[]) && has("/c", &["cpu", "cpuacct"]) && has("/m:x", &["memory"]));
        assert!(!has("/c", &[]) && !has("/a", &["cpu"]) && !has("/m", &["memory"]));
        assert!(!has("/", &["pids"]));
    }
}
