// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The timeline: threads on CPUs, and what the reader does with it. See timeline.py for what the
// page is given.

class Timeline extends TimelineInWords {
  constructor(...given) {
    super(...given);
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
    const button = (label, title, act) =>
      bar.append(element("button", { type: "button", textContent: label, title, onclick: act }));
    button("+", "zoom in (+)", () => this.zoom(0.5));
    button("−", "zoom out (-)", () => this.zoom(2));
    button("all", "the whole log (0)", () => this.show(0, this.data.end));
    if (this.data.windows.length > 1 || this.data.windows[0].to < this.data.end) {
      bar.append(element("span", { textContent: "each quantum:" }));
      for (const w of this.data.windows) {
        const title = `${moment(w.from, 1e6)} to ${moment(w.to, 1e6)}`;
        button(w.name, title, () => this.show(w.from, w.to));
      }
    }
    const hint = "ctrl + wheel zooms, drag moves, a click selects a thread";
    bar.append(element("span", { className: "hint", textContent: hint }));
    return bar;
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (e) => this.onWheel(e), { passive: false });
    canvas.addEventListener("pointerdown", (e) => this.onDown(e));
    canvas.addEventListener("pointermove", (e) => this.onMove(e));
    canvas.addEventListener("pointerup", (e) => this.onUp(e));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("dblclick", (e) => this.zoom(0.25, this.time(e.offsetX)));
    canvas.addEventListener("keydown", (e) => this.onKey(e));
    const observer = new ResizeObserver(
      () => this.place.clientWidth !== this.width && this.resize(),
    );
    observer.observe(this.place);
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
    const sideways = e.shiftKey
      ? e.deltaY || e.deltaX
      : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
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
      const same = exact ? t.name === picked?.name : t.program === picked?.program;
      this.isPicked[id] = !program || same ? 1 : 0;
    });
    this.layout();
  }

  showTip(e) {
    const found = this.at(e.offsetX, e.offsetY);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren(...found.lines.map((line) => element("div", { textContent: line })));
    const [x, y] = [e.offsetX + this.canvas.offsetLeft, e.offsetY + this.canvas.offsetTop];
    const left = x > this.width / 2 ? x - this.tip.offsetWidth - 12 : x + 14;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${y + 14}px`;
  }
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
