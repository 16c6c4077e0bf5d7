# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a large log costs afterwards: export, text, report, comparison."""

import shutil

from measure import run, spread, timed

LARGE = 10_000_000


def large_log(tools) -> list[str]:
    """A log of 10 million events: export on one core, text, report; and a comparison with another
    such log.
    """
    log, other = tools.folder / "large.klog", tools.folder / "other.klog"
    if not tools.synth:
        raise RuntimeError("SYNTH names no program that writes a large log")
    run([tools.synth, log, LARGE])
    run([tools.synth, other, LARGE * 101 // 100])
    export, cat, report = [], [], []
    for _ in range(3):
        out = tools.folder / "export"
        export.append(
            timed([tools.klogger, "export", "--to", "parquet", log, "-o", out], core=tools.cpu)
        )
        shutil.rmtree(out)
        cat.append(timed([tools.klogger, "cat", log], core=tools.cpu))
    report.append(timed([tools.klogger, "report", log, "--html", tools.folder / "report.html"]))
    report.append(timed([tools.klogger, "report", log]))
    report.append(timed([tools.klogger, "compare", log, other]))
    rows = [
        ("export to Parquet, one core", export, "5 M events/s"),
        ("cat, one core", cat, ""),
    ]
    lines = [
        "## A log of 10 million events",
        "",
        (
            f"Synthetic, {log.stat().st_size / 2**20:.0f} MiB. One core: seconds of CPU time;"
            " reports: of the clock."
        ),
        "",
        "| | s | million events/s | peak MiB | to be at least, or at most |",
        "|---|---|---|---|---|",
    ]
    for name, used, bound in rows:
        cpu = spread([u.cpu_s for u in used])
        peak = max(u.peak_mib for u in used)
        lines.append(
            f"| {name} | {cpu:.2f} | {LARGE / cpu.median / 1e6:.2f} | {peak:.0f} | {bound} |"
        )
    uses = {
        "report with export and HTML": "10 s, 1,024 MiB",
        "report again": "10 s, 1,024 MiB",
        "comparison with a log of as many, with its export": "30 s",
    }
    for (name, bound), used in zip(uses.items(), report, strict=True):
        lines.append(
            f"| {name} | {used.wall_s:.2f} | {LARGE / used.wall_s / 1e6:.2f} | {used.peak_mib:.0f}"
            f" | {bound} |"
        )
    size = (tools.folder / "report.html").stat().st_size / 1e6
    return [
        *lines,
        "",
        f"The report's HTML has {size:.1f} MB. The peak is that of the largest process.",
    ]
