// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Measures the cost of each step of an event, and of alternatives: hits the arms of
//! `bench/steps.bpf.c` in alternating blocks, on CPU 0. Prints JSON: `arms`, for each the ns that
//! it costs more than the empty arm, by pass; `behind`, how old the scheduler's time is at
//! switches, in ns, sorted.
//!
//! usage: steps OBJECT ARMS [PASSES]

use klogger_ring::layout::bpf;
use klogger_ring::layout::ring::{CONTROL, HARD, HEAD, LIMIT, SLACK};
use libbpf_rs::{AsRawLibbpf, MapCore, Object, ObjectBuilder};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{read_volatile, write_volatile};

const BLOCK: usize = 100;
const ROUNDS: usize = 120;
/// Bytes of a ring's data.
const RING: u64 = 1 << 20;

fn cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Memory of a map, mapped until this program ends.
fn mapped(object: &Object, name: &str) -> Result<*mut u8, Box<dyn Error>> {
    let map = object.maps().find(|m| m.name() == name).ok_or("no such map")?;
    let length = (map.value_size() as usize).next_multiple_of(4096);
    let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, map.as_fd().as_raw_fd());
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error().into()) } else { Ok(at.cast()) }
}

/// One ring, for CPU 0; only threads in scope are logged.
fn load(file: &str) -> Result<Object, Box<dyn Error>> {
    let mut open = ObjectBuilder::default().open_file(file)?;
    for mut map in open.maps_mut() {
        match map.name().to_str().unwrap_or_default() {
            ".rodata.klogger" => {
                let mut bytes = vec![0; bpf::CONFIG];
                let words = [
                    (bpf::CONFIG_RINGS, 1),
                    (bpf::CONFIG_MASK, RING as u32 - 1),
                    (bpf::CONFIG_BASE, 5),
                ];
                for (at, word) in words {
                    bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
                }
                bytes[bpf::CONFIG_SCOPED] = 1;
                map.set_initial_value(&bytes)?;
            }
            "klogger_rings" => map.set_value_size((CONTROL + RING as usize + SLACK) as u32)?,
            _ => {}
        }
    }
    Ok(open.load()?)
}

/// Where libbpf has mapped the arena, if the program has one.
fn arena(object: &Object) -> Option<*mut u8> {
    let map = object.maps().find(|m| m.name() == "arena")?;
    let mut size = 0;
    // SAFETY: the map lives as long as the object.
    let at =
        unsafe { libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut size) };
    (!at.is_null()).then_some(at.cast())
}

struct Steps {
    control: *mut u8,
    rings: Vec<*mut u8>,
}

impl Steps {
    /// Runs a block. The rings are reset before they are full.
    fn block(&self, arm: u32) -> f64 {
        // SAFETY: all are mapped, and the program, which is not running now, reads single words.
        unsafe {
            for ring in &self.rings {
                let (head, limit) = (ring.add(HEAD).cast::<u64>(), ring.add(LIMIT).cast::<u64>());
                if read_volatile(limit) == 0 || read_volatile(head) + 64 * BLOCK as u64 > RING {
                    write_volatile(head, 0);
                    write_volatile(limit, RING);
                    write_volatile(ring.add(HARD).cast(), RING);
                }
            }
            write_volatile(self.control.cast(), arm);
        }
        let start = cpu_ns();
        for _ in 0..BLOCK {
            // SAFETY: an option that no kernel knows.
            unsafe { libc::prctl(0x4b4c_4701, 7, 0, 0, 0) };
        }
        (cpu_ns() - start) as f64 / BLOCK as f64
    }

    /// For each arm, the median of its cost above that of arm 0.
    fn pass(&self, arms: usize) -> Vec<f64> {
        let mut blocks = vec![Vec::with_capacity(ROUNDS); arms];
        for round in 0..ROUNDS {
            for n in 0..arms {
                let arm = (round + n) % arms;
                blocks[arm].push(self.block(arm as u32));
            }
        }
        let median = |blocks_of: &Vec<f64>| {
            let mut over: Vec<f64> = blocks_of.iter().zip(&blocks[0]).map(|(a, b)| a - b).collect();
            over.sort_by(f64::total_cmp);
            over[over.len() / 2]
        };
        blocks.iter().map(median).collect()
    }
}

fn attach(object: &Object, name: &str) -> Result<libbpf_rs::Link, Box<dyn Error>> {
    Ok(object.progs_mut().find(|p| p.name() == name).ok_or("no such program")?.attach_trace()?)
}

/// How old the scheduler's time was at switches during one second of sleeping and waking.
fn behind(object: &Object) -> Result<Vec<u64>, Box<dyn Error>> {
    let words = mapped(object, ".bss.where_b")?.cast::<u64>();
    let link = attach(object, "staleness")?;
    let start = std::time::Instant::now();
    while start.elapsed().as_secs() < 1 {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    drop(link);
    // SAFETY: within the map; the program may still store once, whole words.
    let word = |n: usize| unsafe { read_volatile(words.add(n)) };
    let count = (word(0) as usize).min(1 << 16);
    let mut apart: Vec<u64> = (1..=count).map(word).collect();
    apart.sort_unstable();
    let least = apart.first().copied().unwrap_or_default();
    Ok(apart.iter().map(|a| a - least).collect())
}

fn pin() -> Result<u32, Box<dyn Error>> {
    // SAFETY: the set is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(std::process::id())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, file, arms, rest @ ..] = &words[..] else {
        return Err("usage: steps OBJECT ARMS [PASSES]".into());
    };
    let (arms, passes): (usize, usize) =
        (arms.parse()?, rest.first().map_or(Ok(9), |p| p.parse())?);
    let tid = pin()?;
    let object = load(file)?;
    let mut steps = Steps {
        control: mapped(&object, ".bss.where_c")?,
        rings: vec![mapped(&object, "klogger_rings")?],
    };
    let (enabled, scope) =
        (mapped(&object, ".data.klogger_e")?, mapped(&object, ".bss.klogger_s")?);
    // SAFETY: within the maps.
    unsafe {
        write_volatile(enabled, 1);
        let word = scope.add(tid as usize / 64 * 8).cast::<u64>();
        write_volatile(word, 1 << (tid & 63));
        if let Some(ring) = arena(&object) {
            // Pages of an arena are allocated when they are touched.
            (0..CONTROL + RING as usize + SLACK)
                .step_by(4096)
                .for_each(|at| write_volatile(ring.add(at), 0));
            write_volatile(mapped(&object, ".bss.where_p")?.cast(), ring as u64);
            steps.rings.push(ring);
        }
    }
    let link = attach(&object, "steps")?;
    (0..arms as u32).for_each(|arm| _ = steps.block(arm));
    let found: Vec<Vec<f64>> = (0..passes).map(|_| steps.pass(arms)).collect();
    drop(link);
    let by_arm: Vec<Vec<f64>> =
        (0..arms).map(|arm| found.iter().map(|pass| pass[arm]).collect()).collect();
    println!("{}", serde_json::json!({ "arms": by_arm, "behind": behind(&object)? }));
    Ok(())
}
