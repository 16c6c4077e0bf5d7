// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Which part of the log the timeline shows, and where on the canvas each moment and each thread is.
//
// Far out, a pixel holds many quanta: then bins are drawn, each with the part of it that each
// thread had. The page is given the finest bins, and makes levels of coarser ones, each four times
// as wide. Near by, quanta are drawn one by one where the page has them, with their wake-ups. So a
// redraw costs about as much as there are pixels.

// Wider bins than this, in pixels, are drawn only where there is nothing finer.
const BIN_PIXELS = 1.6;
// So many quanta are drawn one by one, whatever their width.
const QUANTA_DRAWN = 8000;
const ROWS_OF_THREADS = 24;
const AXIS = 26;
const GAP = 10;

class TimelineView {
  constructor(place, data, bins, quanta, selection) {
    Object.assign(this, { place, data, quanta, selection });
    this.cpus = data.cpus.length;
    this.threads = data.threads.length;
    this.levels = levelsOf(bins, data.width, data.shareMax, this.cpus, this.threads);
    quanta.by = grouped(quanta, counted(quanta.rows), this.cpus, this.threads);
    this.from = 0;
    this.to = data.end;
    this.isPicked = new Uint8Array(this.threads).fill(1);
  }

  // What is drawn where. Threads that are selected have a row, even if they had little CPU time.
  layout() {
    const rows = this.data.cpus.map((cpu, index) => ({ kind: "cpu", index, label: `CPU ${cpu}` }));
    const height = { cpu: this.cpus <= 8 ? 34 : this.cpus <= 24 ? 20 : 12, thread: 17 };
    for (let id = 1; id < this.threads; id++) {
      const picked = this.selection.picked && this.isPicked[id];
      if (id <= ROWS_OF_THREADS || (picked && rows.length < this.cpus + 2 * ROWS_OF_THREADS)) {
        rows.push({ kind: "thread", index: id, label: this.data.threads[id].name });
      }
    }
    let y = AXIS;
    for (const row of rows) {
      if (row.kind === "thread" && row === rows[this.cpus]) y += GAP;
      Object.assign(row, { y, height: height[row.kind] });
      y += row.height + 2;
    }
    this.rows = rows;
    this.rowOf = { cpu: rows.slice(0, this.cpus), thread: [] };
    for (const row of rows) if (row.kind === "thread") this.rowOf.thread[row.index] = row;
    this.height = y + 2;
    this.resize();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = Math.max(240, this.place.clientWidth);
    this.left = this.width < 560 ? 92 : 150;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => this.draw());
  }

  // ---- moving

  show(from, to) {
    const length = Math.min(Math.max(to - from, 200), this.data.end);
    this.from = Math.min(Math.max(from, 0), this.data.end - length);
    this.to = this.from + length;
    this.redraw();
  }

  zoom(factor, middle = (this.from + this.to) / 2) {
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  move(part) {
    const by = part * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  x(time) {
    return this.left + ((time - this.from) / (this.to - this.from)) * (this.width - this.left);
  }

  time(x) {
    return this.from + ((x - this.left) / (this.width - this.left)) * (this.to - this.from);
  }

  // The view, cut where the page's data of single quanta begins, and where it ends.
  piecesOf() {
    const found = [];
    let at = this.from;
    for (const w of this.data.windows) {
      const [low, high] = [Math.max(w.from, this.from), Math.min(w.to, this.to)];
      if (low >= high) continue;
      if (low > at) found.push({ from: at, to: low, exact: false });
      found.push({ from: low, to: high, exact: this.fewOrWide(low, high) });
      at = high;
    }
    if (at < this.to) found.push({ from: at, to: this.to, exact: false });
    return found;
  }

  fewOrWide(from, to) {
    if (this.levels[0].width / this.perPixel > BIN_PIXELS) return true;
    const { start, rows } = this.quanta;
    const all = { length: rows };
    return count(start, all, from, to) <= QUANTA_DRAWN;
  }

  level() {
    const fitting = this.levels.filter((l) => l.width / this.perPixel <= BIN_PIXELS);
    return fitting.at(-1) ?? this.levels[0];
  }
}
