// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Texts of /proc, and the values that are read of them.

use super::*;
use klogger_log::record::Header;
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};

fn schema(text: &str) -> Schema {
    parse("s.klogger", text, &Options::default()).unwrap().schema
}

/// Reads `text` by a poll of fields `u64`; the numbers of each record, and the fields without a
/// value.
fn numbers(rows: bool, fields: &str, text: &str) -> (Vec<Vec<i64>>, Vec<String>) {
    let rows = if rows { " rows" } else { "" };
    let schema =
        schema(&format!("schema s\npoll P from \"/proc/x\" every 1s{rows} {{ {fields} }}\n"));
    let layout = EventLayout::new("s", &schema.events[0], 7);
    let reading = records(&layout, schema.events[0].poll.as_ref().unwrap(), text, 1 << 20);
    let all = reading.records.chunks(layout.fixed as usize).map(|record| {
        assert_eq!(Header::read(record).unwrap().id(), 7);
        let word = |f: &FieldLayout| &record[f.offset as usize..][..8];
        layout.fields.iter().map(|f| i64::from_le_bytes(word(f).try_into().unwrap())).collect()
    });
    (all.collect(), reading.missing)
}

#[test]
fn keys_of_all_forms() {
    let (found, missing) = numbers(
        false,
        "u64 pgfault  u64 free from \"MemFree\"  u64 anon from \"Active(anon)\"
         u64 mhz from \"cpu MHz\"  u64 system from \"cpu\" 3  u64 psi from \"some.total\"
         u64 full_psi from \"full.avg10\"  u64 requests from \"Ip.InReceives\"
         u64 set from \"NAME\"  u64 gone",
        "pgfault 12\nMemFree:   345 kB\nActive(anon): 6 kB\ncpu MHz\t\t: 2000.25\n\
         cpu  1 2 3 4\npgfault 13\nsome avg10=1.50 avg60=0.00 total=77\nfull avg10=2.50 total=8\n\
         Ip: Forwarding InReceives\nIp: 1 99\nNAME=5\n",
    );
    assert_eq!(found, [[12, 345, 6, 200_025, 3, 77, 250, 99, 5, 0]]);
    assert_eq!(missing, ["gone"]);
}

#[test]
fn words_of_a_file() {
    let (found, missing) =
        numbers(false, "u64 load from 1  u64 last from 5", "0.21 0.30 0.4 2/300 4711\n");
    assert_eq!((found, missing), (vec![vec![21, 4711]], vec![]));
    assert_eq!(numbers(false, "u64 value from 1", "").1, ["value"]);
    assert_eq!(numbers(false, "u64 value from 1 as hex", "ff\n").0, [[255]]);
    assert_eq!(numbers(false, "s64 value from 1", "-5\n").0, [[-5]]);
}

#[test]
fn rows_below_heads() {
    let text = "Inter-|   Receive |\n face |bytes packets\n    lo: 10 20\neth0:30 40\n";
    let (found, missing) = numbers(true, "u64 bytes from 2  u64 packets from 3", text);
    assert_eq!(found, [[10, 20], [30, 40]]);
    assert!(missing.is_empty());
    let (found, missing) = numbers(true, "u64 bytes from 9", text);
    assert!(found.is_empty());
    assert_eq!(missing, ["bytes"]);
}

#[test]
fn texts() {
    let schema = schema(
        "schema s\npoll P from \"/proc/x\" every 1s {
             string model from \"model name\"  string[4] first from \"model name\" }",
    );
    let layout = EventLayout::new("s", &schema.events[0], 1);
    let poll = schema.events[0].poll.as_ref().unwrap();
    let reading = records(&layout, poll, "model name\t: A fast one\n", 0);
    assert!(reading.missing.is_empty());
    let text = String::from_utf8_lossy(&reading.records);
    assert!(text.contains("A fast one") && text.contains("A fa"));
}

#[test]
fn what_is_no_number() {
    for word in ["", "-", "max", "1.", ".5", "1.2.3", "0x", "9z", "99999999999999999999"] {
        assert_eq!(number(word, 10), None, "{word}");
    }
    assert_eq!(number("0x10", 10), Some(16));
    assert_eq!(number("0644", 8), Some(0o644));
    assert_eq!(number("18446744073709551615", 10), Some(-1));
    assert_eq!(number("50%", 10), Some(50));
}
