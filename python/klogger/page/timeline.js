// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The timeline: threads on CPUs, drawn on a canvas. See timeline.py for what the page is given.
//
// Far out, a pixel holds many quanta: then bins are drawn, each with the part of it that each
// thread had. The page is given the finest bins, and makes levels of coarser ones, each four times
// as wide. Near by, quanta are drawn one by one where the page has them, with their wake-ups. So a
// redraw costs about as much as there are pixels.

const HOW = ["", "preempted, or yielded", "went to sleep (S)", "waits (D)", "ended", "stopped"];
// Wider bins than this, in pixels, are drawn only where there is nothing finer.
const BIN_PIXELS = 1.6;
// So many quanta are drawn one by one, whatever their width.
const QUANTA_DRAWN = 8000;
const ARROWS_DRAWN = 300;
const ROWS_OF_THREADS = 24;
const AXIS = 26;
const GAP = 10;

async function unpack({ rows, layout, data }) {
  const packed = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns = { rows };
  let at = 0;
  for (const { name, depth, ascending } of layout) {
    const column = ascending || depth > 4 ? new Float64Array(rows) : new Uint32Array(rows);
    for (let factor = 1, d = 0; d < depth; d++, factor *= 256) {
      for (let i = 0; i < rows; i++) column[i] += planes[at++] * factor;
    }
    if (ascending) for (let i = 1; i < rows; i++) column[i] += column[i - 1];
    columns[name] = column;
  }
  return columns;
}

// A stable counting sort: the places of `order` by `key`, which is less than `count`.
function sortBy(order, key, count) {
  const next = new Uint32Array(count + 1);
  for (const i of order) next[key[i] + 1]++;
  for (let k = 0; k < count; k++) next[k + 1] += next[k];
  const first = next.slice();
  const sorted = new Uint32Array(order.length);
  for (const i of order) sorted[next[key[i]]++] = i;
  return { sorted, first };
}

function counted(rows) {
  return Uint32Array.from({ length: rows }, (_, i) => i);
}

// The rows of each CPU, and of each thread, in the order of time.
function grouped(columns, order, cpus, threads) {
  return { cpu: sortBy(order, columns.cpu, cpus), thread: sortBy(order, columns.id, threads) };
}

function levelOf(width, parts, cpus, threads) {
  const bins = parts.rows ? parts.bin.reduce((a, b) => Math.max(a, b), 0) + 1 : 1;
  const byId = sortBy(counted(parts.rows), parts.id, threads).sorted;
  const byBin = sortBy(byId, parts.bin, bins).sorted;
  return { width, bins, ...parts, by: grouped(parts, byBin, cpus, threads) };
}

function coarser(level, cpus, threads) {
  const parts = { rows: 0, bin: [], cpu: [], id: [], share: [] };
  const slot = new Int32Array(cpus * threads);
  const seen = new Float64Array(cpus * threads).fill(-1);
  for (let i = 0; i < level.rows; i++) {
    const bin = Math.floor(level.bin[i] / 4);
    const key = level.cpu[i] * threads + level.id[i];
    if (seen[key] !== bin) {
      seen[key] = bin;
      slot[key] = parts.rows++;
      parts.bin.push(bin);
      parts.cpu.push(level.cpu[i]);
      parts.id.push(level.id[i]);
      parts.share.push(0);
    }
    parts.share[slot[key]] += level.share[i] / 4;
  }
  return levelOf(level.width * 4, parts, cpus, threads);
}

// From the finest to one with about as many bins as a screen has pixels.
function levelsOf(parts, width, shareMax, cpus, threads) {
  parts.share = Float32Array.from(parts.share, (s) => s / shareMax);
  const levels = [levelOf(width, parts, cpus, threads)];
  while (levels.at(-1).bins > 400) levels.push(coarser(levels.at(-1), cpus, threads));
  return levels;
}

// The first place in sorted[low, high) whose value is at least `value`.
function search(sorted, low, high, values, value) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[sorted[middle]] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function duration(ns) {
  const steps = [[999.5, 1, "ns"], [999.5e3, 1e3, "µs"], [999.5e6, 1e6, "ms"], [Infinity, 1e9, "s"]];
  const [, factor, unit] = steps.find(([limit]) => Math.abs(ns) < limit);
  const value = ns / factor;
  const digits = factor === 1 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

// A moment, with as many digits as `step` can tell apart.
function moment(ns, step) {
  if (ns === 0) return "0";
  const [factor, unit] = step >= 1e9 || ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return `${(ns / factor).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

function ticks(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push(k * step);
  return { step, found };
}

class Timeline {
  constructor(place, data, bins, quanta, selection) {
    Object.assign(this, { place, data, quanta, selection });
    this.cpus = data.cpus.length;
    this.threads = data.threads.length;
    this.levels = levelsOf(bins, data.width, data.shareMax, this.cpus, this.threads);
    quanta.by = grouped(quanta, counted(quanta.rows), this.cpus, this.threads);
    this.from = 0;
    this.to = data.end;
    this.isPicked = new Uint8Array(this.threads).fill(1);
    this.build();
    this.listen();
    this.layout();
  }

  build() {
    this.canvas = element("canvas", { tabIndex: 0, role: "img" });
    this.canvas.setAttribute("aria-label", "Timeline: arrow keys move, + and - zoom, 0 shows all");
    this.context = this.canvas.getContext("2d");
    this.tip = element("div", { className: "tip", hidden: true });
    this.status = element("p", { className: "note status" });
    this.place.replaceChildren(this.buttons(), this.canvas, this.tip, this.status);
  }

  buttons() {
    const bar = element("div", { className: "controls" });
    const button = (label, title, act) => bar.append(element("button", { type: "button", textContent: label, title, onclick: act }));
    button("+", "zoom in (+)", () => this.zoom(0.5));
    button("−", "zoom out (-)", () => this.zoom(2));
    button("all", "the whole log (0)", () => this.show(0, this.data.end));
    if (this.data.windows.length > 1 || this.data.windows[0].to < this.data.end) {
      bar.append(element("span", { textContent: "each quantum:" }));
      for (const w of this.data.windows) button(w.name, `${moment(w.from, 1e6)} to ${moment(w.to, 1e6)}`, () => this.show(w.from, w.to));
    }
    bar.append(element("span", { className: "hint", textContent: "ctrl + wheel zooms, drag moves, a click selects a thread" }));
    return bar;
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

  // ---- drawing

  draw() {
    this.waiting = 0;
    const begun = performance.now();
    this.colours = coloursOf(this.place, this.printing);
    const c = this.context;
    c.globalAlpha = 1;
    c.clearRect(0, 0, this.width, this.height);
    c.font = "12px system-ui, sans-serif";
    this.perPixel = (this.to - this.from) / (this.width - this.left);
    this.pieces = this.piecesOf();
    this.drawAxis();
    c.save();
    c.beginPath();
    c.rect(this.left, 0, this.width - this.left, this.height);
    c.clip();
    for (const row of this.rows) this.drawRow(row);
    this.drawGaps();
    this.arrows = this.drawArrows();
    c.restore();
    this.drawLabels();
    this.sayWhat();
    this.lastDraw = performance.now() - begun;
  }

  // The view, cut where the page begins to know each quantum, and where it ends.
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

  drawAxis() {
    const c = this.context;
    const { step, found } = ticks(this.from, this.to, Math.max(3, (this.width - this.left) / 125));
    c.textBaseline = "middle";
    c.textAlign = "center";
    for (const t of found) {
      const x = this.x(t);
      c.fillStyle = this.colours.line;
      c.fillRect(x, AXIS - 6, 1, this.height - AXIS + 6);
      c.fillStyle = this.colours.faint;
      if (x > this.left + 24 && x < this.width - 30) c.fillText(moment(t, step), x, AXIS / 2 - 1);
    }
  }

  drawLabels() {
    const c = this.context;
    c.globalAlpha = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const row of this.rows) {
      const strong = row.kind === "cpu" || !this.selection.picked || this.isPicked[row.index];
      c.fillStyle = strong ? this.colours.text : this.colours.faint;
      if (row.height >= 11) c.fillText(row.label, this.left - 8, row.y + row.height / 2, this.left - 12);
    }
  }

  drawRow(row) {
    const c = this.context;
    this.brush = -1;
    c.globalAlpha = 1;
    c.fillStyle = this.colours.row;
    c.fillRect(this.left, row.y, this.width - this.left, row.height);
    for (const piece of this.pieces) {
      if (piece.exact) this.drawQuanta(row, piece);
      else this.drawBins(row, piece);
    }
    c.globalAlpha = 1;
  }

  paint(id, x, y, width, height) {
    const c = this.context;
    if (id !== this.brush) {
      // To set it costs more than to draw a small field.
      this.brush = id;
      c.globalAlpha = this.isPicked[id] ? 1 : 0.16;
      c.fillStyle = this.data.threads[id].colour;
    }
    c.fillRect(x, y, width, height);
  }

  // In a CPU's row the threads of a bin stand on each other; in a thread's row the height is its
  // part of the bin. What is lower than half a pixel is drawn with what comes next; `used` is
  // drawn, `top` is not yet.
  drawBins(row, piece) {
    const level = this.level();
    const { sorted, first } = level.by[row.kind];
    const [low, high] = [first[row.index], first[row.index + 1]];
    const bottom = row.y + row.height;
    const least = row.kind === "thread" ? 1 : 0;
    let [bin, used, top, left, right] = [-1, 0, 0, 0, 0];
    for (let k = search(sorted, low, high, level.bin, Math.floor(piece.from / level.width)); k < high; k++) {
      const i = sorted[k];
      if (level.bin[i] * level.width >= piece.to) break;
      if (level.bin[i] !== bin) {
        bin = level.bin[i];
        used = top = 0;
        left = snapped(this.x(Math.max(bin * level.width, piece.from)));
        right = snapped(this.x(Math.min((bin + 1) * level.width, piece.to)));
      }
      top = Math.min(1, top + level.share[i]);
      const height = Math.max(least, (top - used) * row.height);
      if (height < 0.5) continue;
      this.paint(level.id[i], left, bottom - used * row.height - height, right - left, height);
      used = top;
    }
  }

  // Quanta that are narrower than a pixel share it: the one that had most of it gives the colour,
  // all of them the height.
  drawQuanta(row, piece) {
    const q = this.quanta;
    const { sorted, first } = q.by[row.kind];
    const [low, high] = [first[row.index], first[row.index + 1]];
    const pixel = { at: -1, used: 0, most: 0, id: 0 };
    let before = -1;
    for (let k = Math.max(low, search(sorted, low, high, q.start, piece.from) - 1); k < high; k++) {
      const i = sorted[k];
      if (q.start[i] >= piece.to) break;
      const [left, right] = [this.x(Math.max(q.start[i], piece.from)), this.x(Math.min(q.start[i] + q.length[i], piece.to))];
      if (row.kind === "thread") this.drawWaiting(row, piece, i, before);
      before = i;
      if (right <= left) continue;
      if (right - left >= 1) {
        this.flush(row, pixel);
        this.paint(q.id[i], left, row.y, Math.max(right - left - (right - left > 4 ? 0.6 : 0), 0.5), row.height);
      } else this.gather(row, pixel, Math.floor(left), right - left, q.id[i]);
    }
    this.flush(row, pixel);
  }

  gather(row, pixel, at, width, id) {
    if (pixel.at !== at) this.flush(row, pixel);
    pixel.at = at;
    pixel.used += width;
    if (width > pixel.most) Object.assign(pixel, { most: width, id });
  }

  flush(row, pixel) {
    const height = Math.min(1, Math.max(pixel.used, 0.25)) * row.height;
    if (pixel.used > 0) this.paint(pixel.id, pixel.at, row.y + row.height - height, 1, height);
    Object.assign(pixel, { at: -1, used: 0, most: 0 });
  }

  // From when a thread could run until it did: since its wake-up, or since it was preempted.
  drawWaiting(row, piece, i, before) {
    const q = this.quanta;
    const since = before >= 0 && q.how[before] === 1 ? q.start[before] + q.length[before] : q.start[i] - q.waited[i];
    const [left, right] = [this.x(Math.max(since, piece.from)), this.x(Math.min(q.start[i], piece.to))];
    if (right - left < 1) return;
    this.brush = -1;
    this.context.globalAlpha = this.isPicked[row.index] ? 0.9 : 0.2;
    this.context.fillStyle = this.colours.waiting;
    this.context.fillRect(left, row.y + row.height / 2 - 1.5, right - left, 3);
  }

  drawGaps() {
    const c = this.context;
    c.fillStyle = this.colours.gap;
    for (const [cpu, from, to] of this.data.gaps) {
      if (from === null || to < this.from || from > this.to) continue;
      const left = this.x(from);
      for (const row of this.rowOf.cpu) {
        if (cpu === null || this.data.cpus[row.index] === cpu) c.fillRect(left, row.y, Math.max(1, this.x(to) - left), row.height);
      }
    }
  }

  // The quanta in view that a wake-up began, if these are not too many; with a selection, only
  // those that concern it.
  wakeups() {
    const q = this.quanta;
    const found = [];
    for (const piece of this.pieces) {
      if (!piece.exact) continue;
      for (let i = lowest(q.start, q.rows, piece.from); i < q.rows && q.start[i] < piece.to; i++) {
        if (q.waker_cpu[i] === 0) continue;
        if (this.selection.picked && !this.isPicked[q.id[i]] && !(q.waker[i] && this.isPicked[q.waker[i]])) continue;
        if (found.push(i) > ARROWS_DRAWN) return null;
      }
    }
    return found;
  }

  drawArrows() {
    const found = this.wakeups();
    const q = this.quanta;
    for (const i of found ?? []) {
      const [from, to] = [this.x(q.start[i] - q.waited[i]), this.x(q.start[i])];
      this.arrow(this.rowOf.cpu[q.waker_cpu[i] - 1], from, this.rowOf.cpu[q.cpu[i]], to);
      const [waker, wakee] = [this.rowOf.thread[q.waker[i]], this.rowOf.thread[q.id[i]]];
      if (waker && wakee) this.arrow(waker, from, wakee, to);
    }
    return found;
  }

  arrow(row, x, row2, x2) {
    const c = this.context;
    const [y, y2] = [row.y + row.height / 2, row2.y + (row === row2 ? 2 : row2.height / 2)];
    const bend = row === row2 ? -row.height / 2 : 0;
    c.strokeStyle = c.fillStyle = this.colours.text;
    c.globalAlpha = 0.75;
    c.beginPath();
    c.moveTo(x, y);
    c.quadraticCurveTo((x + x2) / 2 + (bend ? 0 : 4), (y + y2) / 2 + bend, x2, y2);
    c.stroke();
    c.beginPath();
    const down = y2 > y ? -1 : 1;
    c.moveTo(x2, y2);
    c.lineTo(x2 - 3.5, y2 + 5 * down);
    c.lineTo(x2 + 2.5, y2 + 5 * down);
    c.fill();
    c.globalAlpha = 1;
  }

  // ---- words

  sayWhat() {
    const length = this.to - this.from;
    const span = `${moment(this.from, length / 100)} to ${moment(this.to, length / 100)}, ${duration(length)}`;
    const exact = this.pieces.every((p) => p.exact);
    const parts = [exact ? `${span}: each quantum.` : `${span}: bins of ${duration(this.level().width)}, and how much of each a thread had.`];
    if (exact) parts.push(this.sayArrows());
    else if (this.tooFine()) {
      const middle = moment((this.from + this.to) / 2, 1e6).replace(/[ ,]/g, "");
      parts.push(`This page holds nothing finer here. Everything: klogger export --to perfetto ${this.data.log} ; or in a page: klogger report ${this.data.log} --html PAGE --at ${middle}`);
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
    if (x < this.left) return row.kind === "thread" ? { id: row.index, lines: this.linesOfThread(row.index) } : null;
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
    if (k < low || q.start[i] + q.length[i] < time - slack) return { id: row.kind === "thread" ? row.index : -1, lines: [row.label, "not running"] };
    return { id: q.id[i], lines: this.linesOfQuantum(i) };
  }

  linesOfQuantum(i) {
    const q = this.quanta;
    const lines = [
      `${this.data.threads[q.id[i]].name} on CPU ${this.data.cpus[q.cpu[i]]}`,
      `from ${moment(q.start[i], 1000)} for ${duration(q.length[i])}`,
      q.how[i] ? HOW[q.how[i]] : "ran until the log's end",
    ];
    if (q.waker_cpu[i]) {
      const waker = q.waker[i] ? this.data.threads[q.waker[i]].name : "an interrupt, or a thread without a name here";
      lines.push(`woken by ${waker} on CPU ${this.data.cpus[q.waker_cpu[i] - 1]}; waited ${duration(q.waited[i])}`);
    }
    return lines;
  }

  binAt(row, time, y) {
    const level = this.level();
    const { sorted, first } = level.by[row.kind];
    const [low, high] = [first[row.index], first[row.index + 1]];
    const bin = Math.floor(time / level.width);
    const found = [];
    for (let k = search(sorted, low, high, level.bin, bin); k < high && level.bin[sorted[k]] === bin; k++) found.push(sorted[k]);
    const id = row.kind === "thread" ? row.index : underPointer(level, found, (row.y + row.height - y) / row.height);
    const title = `${row.label}: ${moment(bin * level.width, level.width)}, bin of ${duration(level.width)}`;
    const largest = found.sort((a, b) => level.share[b] - level.share[a]).slice(0, 6);
    return { id, lines: [title, ...largest.map((i) => this.lineOfPart(level, row, i))] };
  }

  lineOfPart(level, row, i) {
    const what = row.kind === "cpu" ? this.data.threads[level.id[i]].name : `CPU ${this.data.cpus[level.cpu[i]]}`;
    return `${(100 * level.share[i]).toFixed(1)} % ${what}`;
  }

  // ---- the reader

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (e) => this.onWheel(e), { passive: false });
    canvas.addEventListener("pointerdown", (e) => this.onDown(e));
    canvas.addEventListener("pointermove", (e) => this.onMove(e));
    canvas.addEventListener("pointerup", (e) => this.onUp(e));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("dblclick", (e) => this.zoom(0.25, this.time(e.offsetX)));
    canvas.addEventListener("keydown", (e) => this.onKey(e));
    new ResizeObserver(() => this.place.clientWidth !== this.width && this.resize()).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    for (const [event, on] of [["beforeprint", true], ["afterprint", false]]) {
      addEventListener(event, () => {
        this.printing = on;
        this.draw();
      });
    }
    this.selection.listen((picked) => this.onPick(picked));
  }

  onWheel(e) {
    const sideways = e.shiftKey ? e.deltaY || e.deltaX : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
    if (!e.ctrlKey && !e.metaKey && !sideways) return;
    e.preventDefault();
    if (sideways) this.move(sideways / (this.width - this.left));
    else this.zoom(2 ** Math.max(-1, Math.min(1, e.deltaY / 120)), this.time(e.offsetX));
  }

  onDown(e) {
    this.drag = { x: e.offsetX, from: this.from, to: this.to, moved: false };
    this.canvas.setPointerCapture(e.pointerId);
  }

  onMove(e) {
    if (!this.drag) return this.showTip(e);
    const by = e.offsetX - this.drag.x;
    this.drag.moved ||= Math.abs(by) > 3;
    if (!this.drag.moved) return;
    this.tip.hidden = true;
    const shift = (by / (this.width - this.left)) * (this.drag.to - this.drag.from);
    this.show(this.drag.from - shift, this.drag.to - shift);
  }

  onUp(e) {
    const moved = this.drag?.moved;
    this.drag = null;
    if (moved) return;
    const found = this.at(e.offsetX, e.offsetY);
    if (found && found.id > 0) this.selection.pick(this.data.threads[found.id]);
    else this.selection.pick(null);
  }

  onKey(e) {
    const keys = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "w": () => this.zoom(0.5),
      "-": () => this.zoom(2), "s": () => this.zoom(2),
      "ArrowLeft": () => this.move(-0.2), "a": () => this.move(-0.2),
      "ArrowRight": () => this.move(0.2), "d": () => this.move(0.2),
      "0": () => this.show(0, this.data.end), "Home": () => this.show(0, this.data.end),
      "Escape": () => this.selection.pick(null),
    };
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  }

  onPick(picked) {
    const threads = this.data.threads;
    const exact = picked && threads.some((t) => t.name === picked.name);
    const program = picked && threads.some((t) => t.program === picked.program);
    threads.forEach((t, id) => {
      this.isPicked[id] = !program || (exact ? t.name === picked.name : t.program === picked.program) ? 1 : 0;
    });
    this.layout();
  }

  showTip(e) {
    const found = this.at(e.offsetX, e.offsetY);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren(...found.lines.map((line) => element("div", { textContent: line })));
    const [x, y] = [e.offsetX + this.canvas.offsetLeft, e.offsetY + this.canvas.offsetTop];
    this.tip.style.left = `${Math.max(0, x > this.width / 2 ? x - this.tip.offsetWidth - 12 : x + 14)}px`;
    this.tip.style.top = `${y + 14}px`;
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

function lowest(values, length, value) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function count(values, { length }, from, to) {
  return lowest(values, length, to) - lowest(values, length, from);
}

// On a border between pixels of the screen, so that bins leave no seams.
function snapped(x) {
  const ratio = window.devicePixelRatio || 1;
  return Math.round(x * ratio) / ratio;
}

function coloursOf(place, printing) {
  if (printing) return { text: "#000", faint: "#444", line: "#ddd", row: "#f4f4f4", waiting: "#c62f2f", gap: "rgba(200,60,0,.4)" };
  const style = getComputedStyle(place);
  const found = {};
  for (const name of ["text", "faint", "line", "row", "waiting", "gap"]) found[name] = style.getPropertyValue(`--${name}`).trim();
  return found;
}

async function startTimeline(selection) {
  const place = document.getElementById("threads");
  const given = document.getElementById("timeline-data");
  if (!place || !given) return null;
  if (typeof DecompressionStream === "undefined") {
    place.textContent = "This browser is too old for the timeline: it has no DecompressionStream.";
    return null;
  }
  const data = JSON.parse(given.textContent);
  const [bins, quanta] = await Promise.all([unpack(data.bins), unpack(data.quanta)]);
  const timeline = new Timeline(place, data, bins, quanta, selection);
  timeline.draw();
  return timeline;
}
