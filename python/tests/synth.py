# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes a big invented scheduler log as Parquet, for looking at pictures and for measuring.

Usage: python tests/synth.py OUT-parquet EVENTS [CPUS]
"""

import sys
from pathlib import Path

import duckdb
import support

# name, weight, median quantum in µs, spread (ln), share preempted, median pause before it in µs
PROGRAMS = [
    ("hog", 30, 3800, 0.5, 1.0, 0),
    ("cc1", 16, 700, 1.3, 0.5, 60),
    ("as", 7, 120, 1.0, 0.3, 60),
    ("find", 14, 28, 0.9, 0.1, 30),
    ("cp", 12, 22, 1.1, 0.1, 40),
    ("fetch", 15, 16, 0.8, 0.05, 30),
    ("serve", 15, 12, 0.8, 0.05, 30),
    ("player", 2, 5900, 0.1, 0.2, 500),
    ("pingpong", 30, 3, 0.4, 0.02, 2),
    ("beacon", 1, 13, 0.2, 0.0, 100),
    ("make", 2, 90, 1.0, 0.2, 100),
    ("sh", 2, 200, 1.2, 0.2, 100),
]

SQL = """
SELECT setseed(0.23);
CREATE TABLE program AS SELECT * FROM (VALUES {programs})
  t(name, weight, median, spread, preempted, pause);
CREATE TABLE wheel AS
  SELECT row_number() OVER () - 1 AS slot, k, name, median, spread, preempted, pause
  FROM (SELECT row_number() OVER () AS k, * FROM program), range(1000) r(i) WHERE r.i < weight;
CREATE TABLE quantum AS
WITH draw AS (
  SELECT c.cpu, q.i,
         (random() * (SELECT count(*) FROM wheel))::BIGINT % (SELECT count(*) FROM wheel) AS slot,
         sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) AS z, random() AS u, random() AS v
  FROM range({cpus}) c(cpu), range({quanta} // {cpus}) q(i)
), shaped AS (
  SELECT cpu, i, 1000 + cpu * 100 + k AS pid,
         (1000 * median * exp(spread * z))::BIGINT + 300 AS length,
         u < preempted AS cut,
         CASE WHEN u < preempted THEN 0 ELSE (1000 * pause * v * v)::BIGINT END AS idle,
         (400 + 2e3 * v * v + CASE WHEN v > 0.97 THEN 4e6 * (v - 0.97) / 0.03 ELSE 0 END)::BIGINT
           AS wait
  FROM draw JOIN wheel USING (slot)
)
SELECT cpu, i, pid, cut, wait, idle,
       (sum(length + idle) OVER w) - length AS from_ns, (sum(length + idle) OVER w) AS to_ns,
       lead(pid) OVER w AS next, lead(idle) OVER w AS next_idle
FROM shaped WINDOW w AS (PARTITION BY cpu ORDER BY i ROWS UNBOUNDED PRECEDING);
"""


def table(event: str, select: str) -> str:
    return f"INSERT INTO {event} BY NAME SELECT * FROM ({select}) ORDER BY time"


def main() -> None:
    cpus = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    write(Path(sys.argv[1]), int(float(sys.argv[2])), cpus)


def write(out: Path, events: int, cpus: int) -> None:
    """Writes a log of about so many events."""
    con = duckdb.connect()
    con.execute("SET temp_directory = ?", [str(out.parent / "spill")])
    values = ", ".join(str(p) for p in PROGRAMS)
    for statement in SQL.format(programs=values, cpus=cpus, quanta=int(events / 3.2)).split(";\n"):
        con.execute(statement)
    support.create_tables(con, support.events_of("scheduler"))
    serial = "i * 8 + {}"
    for event, select in {
        "SCHEDIN": (
            f"SELECT from_ns AS time, cpu, {serial.format(3)} AS serial, pid, 120 AS prio, pid AS"
            " tgid FROM quantum"
        ),
        "SCHEDOUT": (
            f"SELECT to_ns AS time, cpu, {serial.format(4)} AS serial, pid, 120 AS prio, CASE WHEN"
            " cut THEN 0 WHEN pid % 7 = 0 THEN 2 ELSE 1 END AS state, CASE WHEN next_idle > 0 THEN"
            " 0 ELSE coalesce(next, 0) END AS next, 0 AS charged FROM quantum"
        ),
        "ADD_TO_RUNQ": (
            f"SELECT greatest(from_ns - wait, 0) AS time, cpu, {serial.format(2)} AS serial, pid, "
            "120 AS prio, cpu AS runq, 0 AS is_new FROM quantum WHERE idle > 0"
        ),
        "TRY_TO_WAKEUP": (
            f"SELECT greatest(from_ns - wait - 300, 0) AS time, (cpu + i % 2) % {cpus} AS cpu,"
            f" {serial.format(0)} AS serial, pid, 120 AS prio, cpu AS target_cpu, CASE WHEN i % 5 ="
            f" 0 THEN 0 ELSE 1001 + (cpu + i % 2) % {cpus} * 100 + i % 12 END AS waker FROM quantum"
            " WHERE idle > 0"
        ),
        "MIGRATE": (
            f"SELECT from_ns - 200 AS time, cpu, {serial.format(1)} AS serial, pid, cpu AS"
            f" from_cpu, (cpu + 1 + i % greatest({cpus} - 1, 1)) % {cpus} AS to_cpu FROM quantum"
            " WHERE i % 97 = 0 AND from_ns > 200"
        ),
    }.items():
        con.execute(table(event, select))
    end = con.execute("SELECT max(to_ns) FROM quantum").fetchone()[0]
    processes = [
        (1000 + cpu * 100 + k + 1, name, 0, None)
        for cpu in range(cpus)
        for k, (name, *_) in enumerate(PROGRAMS)
    ]
    support.write_log(con, out, processes=processes, end=end, cpus=cpus)


if __name__ == "__main__":
    main()
