// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The program that tests/rings.rs runs: `witness CASE` logs what that case expects.

#![deny(warnings)]

use klogger_user::klogger;
use std::ffi::CString;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, io, ptr, thread};

klogger_user::schema!("example", "words");

fn main() {
    match env::args().nth(1).unwrap_or_default().as_str() {
        "shapes" => shapes(),
        "twins" => twins(),
        "threads" => threads(),
        "full" => full(),
        "panic" => panics(),
        "signals" => signals(),
        "fork" => forks(),
        "many" => many(),
        "opens" => opens(),
        case => panic!("no case {case}"),
    }
}

fn shapes() {
    klogger!(NOTHING);
    klogger!(
        NUMBERS,
        true,
        -3,
        203,
        -305,
        60_000,
        -70_006,
        4_000_000_007,
        i64::MIN,
        u64::MAX,
        -9,
        10
    );
    klogger!(PADDED, 1, 2, 3, 4, 5, 6);
    klogger!(
        SHAPES,
        true,
        &[1, 2, 3],
        &[4, u64::MAX],
        "abcdefgh",
        &String::from("name\0 and what follows")
    );
    klogger!(TEXT, 7, Path::new("/a/path"), 8);
    klogger!(TEXT, 9, &[b'x'; 300], 10);
    klogger!(TEXT, 11, c"", 12);
    klogger!(TEXTS, "one", 1, "", &String::from("three"));
    klogger!(TEXTS, b"f\0orgotten", 2, &[b'p'; 800], Path::new("/a/path"));
    klogger!(PATH, &[b'q'; 299]);
    klogger!(WHO, -1);
    klogger!(r#match, 1, 2, 3, "a type");
    klogger!(Self_, 4);
    klogger!(MARK, -5, "text");
}

/// The library's copy of the schema, and this crate's.
fn twins() {
    klogger_user_example::request(1, 11);
    klogger!(REQUEST, 2, 22);
}

fn threads() {
    let work =
        |thread: u64| (0..100).for_each(|i| klogger!(REQUEST, thread << 32 | i, thread as u32));
    let threads: Vec<_> = (0..4).map(|number| thread::spawn(move || work(number))).collect();
    // Joined, so that each has freed its ring.
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Logs more than a ring can hold; after a line of input, the ring has been drained.
fn full() {
    (0..1000).for_each(|i| klogger!(REQUEST, i, 0));
    println!("full");
    io::stdin().read_line(&mut String::new()).unwrap();
    (1000..1003).for_each(|i| klogger!(REQUEST, i, 0));
}

fn panics() {
    let result = catch_unwind(|| klogger!(REQUEST, "no number".parse().unwrap(), 0));
    assert!(result.is_err());
    klogger!(REQUEST, 1, 2);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    klogger!(REPLY, HANDLED.fetch_add(1, Relaxed), 0, false, "handler");
}

/// Logs in signal handlers in the middle of events, 200 times.
fn signals() {
    let every = libc::timeval { tv_sec: 0, tv_usec: 100 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the handler only logs; sigaction is complete.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut());
    }
    let mut logged = 0;
    while HANDLED.load(Relaxed) < 200 {
        klogger!(REQUEST, logged, 0);
        logged += 1;
    }
    // SAFETY: as above. No signal comes after it.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), ptr::null_mut()) };
    println!("{logged} {}", HANDLED.load(Relaxed));
}

fn forks() {
    klogger!(REQUEST, 1, 0);
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        klogger!(REQUEST, 2, 0);
        exit(0);
    }
    // SAFETY: of our own child.
    assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
    klogger!(REQUEST, 3, 0);
}

/// For counting instructions.
fn many() {
    (0..100_000).for_each(|i| klogger_user_example::request(i, 1));
}

/// Opens the library named by the next argument, which is a separate module, and calls it.
fn opens() {
    let path = CString::new(env::args().nth(2).unwrap()).unwrap();
    // SAFETY: our own library, whose function has this type.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let serve = libc::dlsym(library, c"example_serve".as_ptr());
        assert!(!serve.is_null());
        std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64)>(serve)(10);
    }
    klogger!(REQUEST, 99, 0);
}
