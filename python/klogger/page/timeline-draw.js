// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Draws the timeline on its canvas.

// The reason for which a quantum ended, among those of the page: the thread could still run.
const STILL_RUNNABLE = 1;
const ARROWS_DRAWN = 300;

class TimelinePicture extends TimelineView {
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
      if (row.height >= 11)
        c.fillText(row.label, this.left - 8, row.y + row.height / 2, this.left - 12);
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
    const begin = Math.floor(piece.from / level.width);
    for (let k = search(sorted, low, high, level.bin, begin); k < high; k++) {
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
      const left = this.x(Math.max(q.start[i], piece.from));
      const right = this.x(Math.min(q.start[i] + q.length[i], piece.to));
      if (row.kind === "thread") this.drawWaiting(row, piece, i, before);
      before = i;
      if (right <= left) continue;
      if (right - left >= 1) {
        this.flush(row, pixel);
        const width = Math.max(right - left - (right - left > 4 ? 0.6 : 0), 0.5);
        this.paint(q.id[i], left, row.y, width, row.height);
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
    const since = before >= 0 && q.how[before] === STILL_RUNNABLE
      ? q.start[before] + q.length[before]
      : q.start[i] - q.waited[i];
    const left = this.x(Math.max(since, piece.from));
    const right = this.x(Math.min(q.start[i], piece.to));
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
        if (cpu === null || this.data.cpus[row.index] === cpu)
          c.fillRect(left, row.y, Math.max(1, this.x(to) - left), row.height);
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
        const concerned = this.isPicked[q.id[i]] || (q.waker[i] && this.isPicked[q.waker[i]]);
        if (this.selection.picked && !concerned) continue;
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
}

// On a border between pixels of the screen, so that bins leave no seams.
function snapped(x) {
  const ratio = window.devicePixelRatio || 1;
  return Math.round(x * ratio) / ratio;
}

function coloursOf(place, printing) {
  if (printing)
    return {
      text: "#000", faint: "#444", line: "#ddd", row: "#f4f4f4", waiting: "#c62f2f",
      gap: "rgba(200,60,0,.4)",
    };
  const style = getComputedStyle(place);
  const found = {};
  for (const name of ["text", "faint", "line", "row", "waiting", "gap"])
    found[name] = style.getPropertyValue(`--${name}`).trim();
  return found;
}
