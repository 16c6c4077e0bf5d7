// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Serves synthetic requests in several threads: `klogger-user-example [REQUESTS] [THREADS]`.

#![forbid(unsafe_code)]
#![deny(warnings)]

use klogger_user::klogger;
use klogger_user_example::serve;
use std::env::args;
use std::thread;
use std::time::Instant;

// The library has its own copy. Both are one schema of the program.
klogger_user::schema!("example");

fn work(worker: u64, requests: u64) {
    let name = format!("worker {worker}");
    let mut us = [0; 4];
    for i in 0..requests {
        let start = Instant::now();
        serve(worker * requests + i, "/index.html");
        us[i as usize % 4] = start.elapsed().as_micros() as u32;
        if i % 4 == 3 {
            klogger!(LATENCIES, &us, &name);
        }
    }
}

fn main() {
    let mut numbers = args().skip(1).map(|word| word.parse().expect("a number"));
    let (requests, threads) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(2));
    klogger!(MARK, threads as i64, "begin");
    thread::scope(|scope| {
        (0..threads).for_each(|worker| drop(scope.spawn(move || work(worker, requests))))
    });
    klogger!(MARK, threads as i64, "end");
}
