// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Classes of system calls, as users of strace name them: `-e trace=network`, `-e %file`.
//!
//! Which call belongs to which class is as in strace 6.19 (`strace(1)`, and the flags of
//! `src/linux/*/syscallent.h` for x86-64 and the machines with the generic numbers). A call may be
//! in several classes. Names that a machine does not have are left out when they are looked up.

/// A class of system calls: its name, what its calls do, and their names.
pub struct Class {
    pub name: &'static str,
    pub what: &'static str,
    /// Separated by white space.
    calls: &'static str,
}

impl Class {
    /// The class of this name, also in the ways that strace accepts: `%file`, `net`.
    pub fn of(word: &str) -> Option<&'static Class> {
        let bare = word.strip_prefix('%').unwrap_or(word);
        let name = SHORT.iter().find(|(short, _)| *short == bare).map_or(bare, |(_, name)| name);
        CLASSES.iter().find(|class| class.name == name)
    }

    pub fn calls(&self) -> impl Iterator<Item = &'static str> {
        self.calls.split_ascii_whitespace()
    }
}

/// Other names of classes.
const SHORT: [(&str, &str); 4] =
    [("net", "network"), ("descriptor", "desc"), ("mem", "memory"), ("sig", "signal")];

pub const CLASSES: &[Class] = &[
    Class {
        name: "file",
        what: "takes a path",
        calls: "access acct chdir chmod chown chroot creat execve execveat faccessat faccessat2 \
                fanotify_mark fchmodat fchmodat2 fchownat file_getattr file_setattr fsconfig \
                fspick fstatat futimesat getcwd getxattr getxattrat inotify_add_watch lchown \
                lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr lsetxattr \
                lstat mkdir mkdirat mknod mknodat mount mount_setattr move_mount \
                name_to_handle_at newfstatat open open_tree open_tree_attr openat openat2 \
                pivot_root quotactl readlink readlinkat removexattr removexattrat rename \
                renameat renameat2 rmdir setxattr setxattrat stat statfs statx swapoff swapon \
                symlink symlinkat truncate umount2 unlink unlinkat uselib utime utimensat utimes",
    },
    Class {
        name: "desc",
        what: "takes or makes a descriptor",
        calls: "bpf cachestat close copy_file_range creat dup dup2 dup3 epoll_create \
                epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 \
                execveat faccessat faccessat2 fadvise64 fallocate fanotify_init fanotify_mark \
                fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr \
                file_getattr file_setattr finit_module flistxattr flock fremovexattr fsconfig \
                fsetxattr fsmount fsopen fspick fstat fstatat fstatfs fsync ftruncate futimesat \
                getdents getdents64 getxattrat inotify_add_watch inotify_init inotify_init1 \
                inotify_rm_watch io_uring_enter io_uring_register io_uring_setup ioctl \
                kexec_file_load landlock_add_rule landlock_create_ruleset landlock_restrict_self \
                linkat listxattrat lseek memfd_create memfd_secret mkdirat mknodat mmap \
                mount_setattr move_mount mq_getsetattr mq_notify mq_open mq_timedreceive \
                mq_timedsend name_to_handle_at newfstatat open open_by_handle_at open_tree \
                open_tree_attr openat openat2 perf_event_open pidfd_getfd pidfd_open \
                pidfd_send_signal pipe pipe2 poll ppoll pread64 preadv preadv2 process_madvise \
                process_mrelease pselect6 pwrite64 pwritev pwritev2 quotactl_fd read readahead \
                readlinkat readv removexattrat renameat renameat2 select sendfile setns \
                setxattrat signalfd signalfd4 splice statx symlinkat sync_file_range syncfs tee \
                timerfd_create timerfd_gettime timerfd_settime unlinkat userfaultfd utimensat \
                vmsplice write writev",
    },
    Class {
        name: "network",
        what: "calls of sockets",
        calls: "accept accept4 bind connect getpeername getpmsg getsockname getsockopt listen \
                putpmsg recvfrom recvmmsg recvmsg sendfile sendmmsg sendmsg sendto setsockopt \
                shutdown socket socketpair",
    },
    Class {
        name: "process",
        what: "makes, ends, or waits for processes",
        calls: "clone clone3 execve execveat exit exit_group fork kill pidfd_send_signal \
                rt_sigqueueinfo rt_tgsigqueueinfo tgkill tkill vfork wait4 waitid",
    },
    Class {
        name: "signal",
        what: "calls of signals",
        calls: "io_uring_enter kill pause pidfd_send_signal rt_sigaction rt_sigpending \
                rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
                rt_tgsigqueueinfo sigaltstack signalfd signalfd4 tgkill tkill",
    },
    Class {
        name: "ipc",
        what: "calls of System V IPC",
        calls: "msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt \
                shmget",
    },
    Class {
        name: "memory",
        what: "calls of the address space",
        calls: "brk get_mempolicy io_destroy io_setup io_uring_register madvise map_shadow_stack \
                mbind migrate_pages mincore mlock mlock2 mlockall mmap move_pages mprotect \
                mremap mseal msync munlock munlockall munmap pkey_mprotect remap_file_pages \
                set_mempolicy set_mempolicy_home_node shmat shmdt",
    },
    Class {
        name: "creds",
        what: "calls of users and groups",
        calls: "capget capset getegid geteuid getgid getgroups getresgid getresuid getuid prctl \
                setfsgid setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid",
    },
    Class {
        name: "clock",
        what: "reads or sets a clock",
        calls: "adjtimex clock_adjtime clock_getres clock_gettime clock_settime gettimeofday \
                settimeofday time",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_calls::Machine;

    #[test]
    fn classes_name_calls_of_some_machine_each_once() {
        let (x86, arm) = (Machine::X86.calls(), Machine::Arm.calls());
        for class in CLASSES {
            let calls: Vec<&str> = class.calls().collect();
            for call in &calls {
                assert!(x86.contains_key(call) || arm.contains_key(call), "{call}");
            }
            assert!(calls.is_sorted_by(|a, b| a < b), "{}", class.name);
        }
    }

    #[test]
    fn a_class_has_several_names() {
        let of = |word| Class::of(word).map(|class| class.name);
        let all = ["network", "%network", "net", "%net", "file", "%desc", "sockets", "connect"];
        let found = all.map(of);
        let network = Some("network");
        let expected = [network, network, network, network, Some("file"), Some("desc"), None, None];
        assert_eq!(found, expected);
        assert!(Class::of("net").unwrap().calls().any(|call| call == "connect"));
    }
}
