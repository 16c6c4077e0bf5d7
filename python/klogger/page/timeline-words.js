// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What the timeline says in words: below it, and of what the pointer is on.

class TimelineInWords extends TimelinePicture {
  sayWhat() {
    const length = this.to - this.from;
    const step = length / 100;
    const span = `${moment(this.from, step)} to ${moment(this.to, step)}, ${duration(length)}`;
    const exact = this.pieces.every((p) => p.exact);
    const parts = [exact
      ? `${span}: each quantum.`
      : `${span}: bins of ${duration(this.level().width)}, and how much of each a thread had.`];
    if (exact) parts.push(this.sayArrows());
    else if (this.tooFine()) {
      const middle = moment((this.from + this.to) / 2, 1e6).replace(/[ ,]/g, "");
      const log = this.data.log;
      parts.push(
        "This page holds nothing finer here. Everything: " +
          `klogger export --to perfetto ${log} ; ` +
          `or in a page: klogger report ${log} --html PAGE --at ${middle}`,
      );
    }
    this.status.textContent = parts.join(" ");
  }

  sayArrows() {
    if (!this.data.wakeups) return "Wake-ups were not recorded.";
    if (this.arrows === null) return "Zoom in, or select a thread, to see who wakes whom.";
    return "Arrows go from who woke a thread to where it ran; thin lines are waits for a CPU.";
  }

  tooFine() {
    return this.pieces.some((p) => !p.exact) && this.levels[0].width / this.perPixel > 4;
  }

  rowAt(y) {
    return this.rows.find((r) => y >= r.y && y < r.y + r.height + 2);
  }

  // What is drawn at a place: thread (-1: none), and words.
  at(x, y) {
    const row = this.rowAt(y);
    if (!row || x < 0) return null;
    if (x < this.left)
      return row.kind === "thread"
        ? { id: row.index, lines: this.linesOfThread(row.index) }
        : null;
    const time = this.time(x);
    const piece = this.pieces.find((p) => time >= p.from && time < p.to);
    return piece?.exact ? this.quantumAt(row, time) : this.binAt(row, time, y);
  }

  linesOfThread(id) {
    const t = this.data.threads[id];
    return [t.name, `${duration(t.ns)} of CPU time`, `${t.quanta.toLocaleString("en")} quanta`];
  }

  quantumAt(row, time) {
    const q = this.quanta;
    const { sorted, first } = q.by[row.kind];
    const [low, high] = [first[row.index], first[row.index + 1]];
    const slack = 2 * this.perPixel;
    const k = search(sorted, low, high, q.start, time + slack) - 1;
    const i = sorted[k];
    if (k < low || q.start[i] + q.length[i] < time - slack)
      return { id: row.kind === "thread" ? row.index : -1, lines: [row.label, "not running"] };
    return { id: q.id[i], lines: this.linesOfQuantum(i) };
  }

  linesOfQuantum(i) {
    const q = this.quanta;
    const lines = [
      `${this.data.threads[q.id[i]].name} on CPU ${this.data.cpus[q.cpu[i]]}`,
      `from ${moment(q.start[i], 1000)} for ${duration(q.length[i])}`,
      q.how[i] ? this.data.reasons[q.how[i]] : "ran until the log's end",
    ];
    if (q.waker_cpu[i]) {
      const waker = q.waker[i]
        ? this.data.threads[q.waker[i]].name
        : "an interrupt, or a thread without a name here";
      const cpu = this.data.cpus[q.waker_cpu[i] - 1];
      lines.push(`woken by ${waker} on CPU ${cpu}; waited ${duration(q.waited[i])}`);
    }
    return lines;
  }

  binAt(row, time, y) {
    const level = this.level();
    const { sorted, first } = level.by[row.kind];
    const [low, high] = [first[row.index], first[row.index + 1]];
    const bin = Math.floor(time / level.width);
    const found = [];
    let k = search(sorted, low, high, level.bin, bin);
    for (; k < high && level.bin[sorted[k]] === bin; k++) found.push(sorted[k]);
    const id = row.kind === "thread"
      ? row.index
      : underPointer(level, found, (row.y + row.height - y) / row.height);
    const since = moment(bin * level.width, level.width);
    const title = `${row.label}: ${since}, bin of ${duration(level.width)}`;
    const largest = found.sort((a, b) => level.share[b] - level.share[a]).slice(0, 6);
    return { id, lines: [title, ...largest.map((i) => this.lineOfPart(level, row, i))] };
  }

  lineOfPart(level, row, i) {
    const what = row.kind === "cpu"
      ? this.data.threads[level.id[i]].name
      : `CPU ${this.data.cpus[level.cpu[i]]}`;
    return `${(100 * level.share[i]).toFixed(1)} % ${what}`;
  }
}

function underPointer(level, found, part) {
  let used = 0;
  for (const i of found) {
    used += level.share[i];
    if (part <= used) return level.id[i];
  }
  return -1;
}
