// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A kernel's build tree, or what a distribution's package of headers has of it: is it one, is it
//! complete, and which compiler does it want?

use klogger_os::Error;
use klogger_os::confine::{self, Limits, Permits};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Tree {
    pub dir: PathBuf,
    /// As `uname -r` says it.
    pub release: String,
    /// Where the headers are that the configuration did not make.
    pub source: PathBuf,
    /// As in `arch/NAME`.
    pub arch: &'static str,
    /// For make: the compiler, and the architecture if it is not this machine's.
    pub variables: Vec<String>,
}

/// Where the headers of a kernel are: of the running one, or of another release.
pub fn kernel_dir(release: Option<&str>) -> Result<PathBuf, Error> {
    let running = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.unwrap_or(running.trim());
    let places =
        [format!("/lib/modules/{release}/build"), format!("/usr/src/linux-headers-{release}")];
    if let Some(found) = places.iter().map(Path::new).find(|p| p.join("Makefile").exists()) {
        return Ok(found.into());
    }
    Err(Error::new(format!(
        "modules for kernel {release} need its headers, and {} is not here",
        places[0]
    ))
    .help(format!("{}; or --kernel DIR if you have built it yourself", package(release))))
}

/// How this distribution brings the headers.
fn package(release: &str) -> String {
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let ids =
        about.lines().filter_map(|l| l.strip_prefix("ID=").or_else(|| l.strip_prefix("ID_LIKE=")));
    let ids: String = ids.map(|id| format!("{} ", id.trim_matches('"'))).collect();
    let is = |names: &[&str]| ids.split(' ').any(|id| names.contains(&id));
    if is(&["fedora", "rhel", "centos", "suse", "opensuse"]) {
        format!("install kernel-devel of this release ({release})")
    } else if is(&["arch"]) {
        "install linux-headers (of the kernel's package)".into()
    } else {
        format!("apt-get install linux-headers-{release}")
    }
}

impl Tree {
    pub fn open(dir: &Path) -> Result<Tree, Error> {
        let dir = dir.canonicalize().map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new(format!("there is no folder {}", dir.display()))
                .help("name a kernel's build tree, such as /lib/modules/RELEASE/build"),
            _ => Error::new(format!("cannot use {}: {e}", dir.display())),
        })?;
        let shown = dir.display();
        let makefile = fs::read_to_string(dir.join("Makefile")).unwrap_or_default();
        let source = source_of(&dir, &makefile);
        if makefile.is_empty() || !source.join("include/linux/module.h").exists() {
            return Err(Error::new(format!("{shown} is no kernel build tree")).help(
                "name the folder in which the kernel was built, or its headers: \
                       /lib/modules/RELEASE/build",
            ));
        }
        let incomplete = |what: &str, help: &str| {
            Err(Error::new(format!("the kernel in {shown} {what}")).help(help))
        };
        let Ok(config) = fs::read_to_string(dir.join("include/config/auto.conf")) else {
            return incomplete(
                "is not configured",
                &format!("make -C {shown} defconfig, and then build it"),
            );
        };
        let config = Config(config);
        if !config.has("CONFIG_MODULES") {
            return incomplete(
                "takes no modules (CONFIG_MODULES=n)",
                "configure it with CONFIG_MODULES=y",
            );
        }
        // Debian's headers have another name for it in include/config/kernel.release.
        let release =
            fs::read_to_string(dir.join("include/generated/utsrelease.h")).unwrap_or_default();
        let release = release.split('"').nth(1).unwrap_or_default().to_string();
        if release.is_empty() || !dir.join("Module.symvers").exists() {
            return incomplete(
                "is not built: it has no Module.symvers",
                &format!("make -C {shown}; 'modules_prepare' alone is not enough"),
            );
        }
        let mut variables = compiler(&config, &release)?;
        if config.has("CONFIG_UML") {
            variables.push("ARCH=um".into());
        }
        Ok(Tree { arch: config.arch(), release, source, variables, dir })
    }

    /// `make -C DIR M=FOLDER TARGET`, its words in the language that its messages are searched for.
    pub fn make(&self, folder: &Path, target: &str) -> Result<std::process::Output, Error> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new("make");
        command
            .arg("-k")
            .arg(format!("-j{jobs}"))
            .arg("-C")
            .arg(&self.dir)
            .arg(format!("M={}", folder.display()));
        command.args(&self.variables).arg(target).current_dir(folder).env("LC_ALL", "C");
        // The kernel's makefiles drop LC_ALL.
        command.env("LC_CTYPE", "C").env("LC_MESSAGES", "C").env("LANG", "C");
        // If klogger itself was started by a make.
        ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"].iter().for_each(|name| {
            command.env_remove(name);
        });
        self.confine(&mut command, folder);
        command.output().map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new("modules are built by make, which is not installed")
                .help("apt-get install make"),
            _ => Error::new(format!("cannot run make: {e}")),
        })
    }
}

impl Tree {
    /// A schema is anybody's: what compiles it sees the kernel's headers and compilers, and writes
    /// to this folder only.
    fn confine(&self, command: &mut Command, folder: &Path) {
        let compilers = self.variables.iter().filter_map(|v| match v.split_once('=')? {
            ("CC", name) => confine::find_program(name),
            ("LLVM", suffix) => {
                confine::find_program(&format!("clang{}", suffix.trim_start_matches('1')))
            }
            _ => None,
        });
        let homes: Vec<PathBuf> = compilers.map(|c| confine::home_of(&c)).collect();
        let mut read: Vec<&Path> = ["/proc", "/sys", "/dev/full"].map(Path::new).into();
        read.extend(
            [self.dir.as_path(), &self.source]
                .into_iter()
                .chain(homes.iter().map(PathBuf::as_path)),
        );
        // Their temporary files, and no cache of compilers elsewhere.
        command.env("TMPDIR", folder).env("CCACHE_DISABLE", "1");
        confine::confine(
            command,
            &Permits { read: &read, write: &[folder], nobody: false, limits: LIMITS },
        );
    }
}

/// For each process of a build: more than any needs.
const LIMITS: Limits = Limits { cpu_seconds: 3600, memory: u64::MAX, file_size: 4 << 30 };

/// A tree that was configured elsewhere has a Makefile that includes the real one.
fn source_of(dir: &Path, makefile: &str) -> PathBuf {
    let included = makefile
        .lines()
        .filter_map(|l| l.strip_prefix("include "))
        .find_map(|l| l.strip_suffix("/Makefile"));
    match included {
        Some(path) if !path.contains('$') => dir.join(path.trim()),
        _ => dir.into(),
    }
}

/// `include/config/auto.conf`
struct Config(String);

impl Config {
    fn value(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix('='))
            .map(|v| v.trim_matches('"'))
    }

    fn has(&self, name: &str) -> bool {
        self.value(name) == Some("y")
    }

    /// UML has no trace headers of its own, whatever it runs on.
    fn arch(&self) -> &'static str {
        let known = [
            ("CONFIG_UML", "um"),
            ("CONFIG_X86", "x86"),
            ("CONFIG_ARM64", "arm64"),
            ("CONFIG_RISCV", "riscv"),
            ("CONFIG_S390", "s390"),
            ("CONFIG_PPC", "powerpc"),
            ("CONFIG_ARM", "arm"),
            ("CONFIG_LOONGARCH", "loongarch"),
        ];
        known.iter().find(|(option, _)| self.has(option)).map_or("", |(_, name)| name)
    }

    fn number(&self, name: &str) -> u32 {
        self.value(name).and_then(|v| v.parse().ok()).unwrap_or(0)
    }
}

/// What tells make to use the compiler that the kernel was compiled with. Plugins and mitigations
/// of a kernel depend on its compiler, so that another major version will not do.
fn compiler(config: &Config, release: &str) -> Result<Vec<String>, Error> {
    let text = config.value("CONFIG_CC_VERSION_TEXT").unwrap_or("gcc");
    let named = text.split(' ').next().unwrap_or("gcc").to_string();
    let clang = config.has("CONFIG_CC_IS_CLANG");
    let (word, version) = match clang {
        true => ("clang", config.number("CONFIG_CLANG_VERSION")),
        false => ("gcc", config.number("CONFIG_GCC_VERSION")),
    };
    let major = version / 10_000;
    let candidates = [named, format!("{word}-{major}"), word.to_string()];
    match candidates.iter().find(|c| major == 0 || major_of(c) == Some(major)) {
        Some(found) if clang => {
            let suffix = found.strip_prefix("clang").filter(|s| s.starts_with('-')).unwrap_or("1");
            Ok(vec![format!("LLVM={suffix}")])
        }
        Some(found) => Ok(vec![format!("CC={found}")]),
        None => {
            let here = match major_of(word) {
                Some(other) => format!("here is {word} {other}"),
                None => format!("there is no {word} here"),
            };
            let text = format!("kernel {release} was compiled by {word} {major}, and {here}");
            Err(Error::new(text).help(format!(
                "apt-get install {word}-{major}: a module wants the compiler of its kernel, of the \
                 same major version"
            )))
        }
    }
}

fn major_of(compiler: &str) -> Option<u32> {
    let output = Command::new(compiler).arg("-dumpversion").output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_configuration() {
        let config = Config(
            "CONFIG_X86_64=y\nCONFIG_X86=y\nCONFIG_CC_VERSION_TEXT=\"gcc-12 (D) 12.2.0\"\n".into(),
        );
        assert_eq!(config.value("CONFIG_CC_VERSION_TEXT"), Some("gcc-12 (D) 12.2.0"));
        assert_eq!(config.arch(), "x86");
        assert!(!config.has("CONFIG_X"));
    }

    #[test]
    fn a_compiler_that_nobody_has_is_named() {
        let config = Config(
            "CONFIG_CC_IS_GCC=y\nCONFIG_CC_VERSION_TEXT=\"gcc-3 3.4\"\nCONFIG_GCC_VERSION=30400\n"
                .into(),
        );
        let error = compiler(&config, "2.6.9").unwrap_err();
        assert!(error.message.starts_with("kernel 2.6.9 was compiled by gcc 3, and "), "{error}");
        assert!(error.help.unwrap().starts_with("apt-get install gcc-3"));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let message = |dir: &Path| Tree::open(dir).err().unwrap().message;
        assert!(message(folder.path()).ends_with("is no kernel build tree"));
        fs::create_dir_all(folder.path().join("include/linux")).unwrap();
        fs::write(folder.path().join("include/linux/module.h"), "").unwrap();
        fs::write(folder.path().join("Makefile"), "all:\n").unwrap();
        assert!(message(folder.path()).ends_with("is not configured"));
        fs::create_dir_all(folder.path().join("include/config")).unwrap();
        fs::write(folder.path().join("include/config/auto.conf"), "CONFIG_MODULES=y\n").unwrap();
        assert!(message(folder.path()).ends_with("is not built: it has no Module.symvers"));
        fs::write(folder.path().join("include/config/auto.conf"), "CONFIG_X86=y\n").unwrap();
        assert!(message(folder.path()).ends_with("takes no modules (CONFIG_MODULES=n)"));
    }
}
