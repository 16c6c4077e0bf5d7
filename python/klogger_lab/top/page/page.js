// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Shows each frame as it comes. What has not changed stays: a picture gets new rows, an open
// explanation stays open, a table stays sorted. Below klogger/page/page.js, which it uses.

// Seconds without a word of the server, which says something every second.
const QUIET = 5;

const EMBED = {
  renderer: "svg", actions: false, defaultStyle: false, ast: true,
  tooltip: { theme: "custom", disableDefaultStyle: true },
};

// A picture keeps its view as long as only its rows are new. Another one is made beside it, and
// takes its place when it is drawn.
class Picture {
  constructor(place) {
    this.place = place;
    this.key = "";
    this.view = null;
    this.drawn = 0;
    this.newest = null;
    this.busy = false;
    this.ended = false;
  }

  async show(spec, rows) {
    this.newest = { spec, rows };
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.newest) {
        const { spec, rows } = this.newest;
        this.newest = null;
        await this.draw(spec, rows);
        this.drawn += 1;
      }
    } finally {
      this.busy = false;
    }
  }

  async draw(spec, rows) {
    const key = JSON.stringify(spec);
    if (key === this.key) return this.view.data("rows", rows).runAsync();
    const next = element("div", { className: this.view ? "next" : "" });
    this.place.append(next);
    const { view } = await vegaEmbed(next, { ...spec, datasets: { rows } }, EMBED);
    if (this.ended) return view.finalize();
    const old = this.view;
    [this.view, this.key] = [view, key];
    next.className = "";
    for (const other of [...this.place.children]) if (other !== next) other.remove();
    old?.finalize();
  }

  end() {
    this.ended = true;
    this.newest = null;
    this.view?.finalize();
  }
}

// Makes the children of `place` like those of `html`, and keeps those that are alike.
function morph(place, html) {
  const fresh = element("template", { innerHTML: html }).content.firstElementChild;
  const key = (node) => `${node.tagName} ${node.classList[0] ?? ""}`;
  let at = place.firstElementChild;
  for (const node of [...fresh.children]) {
    let same = at;
    while (same && key(same) !== key(node)) same = same.nextElementSibling;
    if (!same) {
      place.insertBefore(node, at);
      continue;
    }
    while (at !== same) {
      const gone = at;
      at = at.nextElementSibling;
      gone.remove();
    }
    update(same, node);
    at = same.nextElementSibling;
  }
  while (at) {
    const gone = at;
    at = at.nextElementSibling;
    gone.remove();
  }
}

function update(old, node) {
  if (old.tagName === "FIGURE") return;
  old.className = node.className;
  const table = old.querySelector("table.answer");
  if (table && node.querySelector("table.answer")) {
    updateTable(table, node.querySelector("table.answer"));
  } else if (old.innerHTML !== node.innerHTML) {
    old.replaceChildren(...node.childNodes);
  }
}

// As the reader has sorted it, with its place in the scrolled part.
function updateTable(old, table) {
  const sorted = [...old.tHead.rows[0].cells].findIndex((cell) => cell.hasAttribute("aria-sort"));
  const titles = (one) => [...one.tHead.rows[0].cells].map((cell) => cell.textContent).join("\n");
  if (titles(old) !== titles(table)) {
    old.replaceChildren(...table.childNodes);
    startHead(old);
    return;
  }
  old.tBodies[0].replaceChildren(...table.tBodies[0].rows);
  if (sorted < 0) return;
  const head = old.tHead.rows[0].cells[sorted];
  // Sorting turns the order round.
  if (head.getAttribute("aria-sort") === "descending") head.removeAttribute("aria-sort");
  else head.setAttribute("aria-sort", "descending");
  sortTable(old, sorted, head);
}

// By mouse or by key, which the report's page leaves to the mouse.
function startHead(table) {
  for (const [index, head] of [...table.tHead.rows[0].cells].entries()) {
    if (!head.textContent) continue;
    head.tabIndex = 0;
    head.addEventListener("click", () => sortTable(table, index, head));
    head.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      sortTable(table, index, head);
    });
  }
}

function lines(place, texts, name = "p", className = "") {
  const same = [...place.children].map((one) => one.textContent).join("\n") === texts.join("\n");
  if (!same) {
    place.replaceChildren(...texts.map((textContent) => element(name, { textContent, className })));
  }
  return place;
}

class Page {
  constructor() {
    this.pictures = new Map();
    this.frames = 0;
    this.frame = null;
    this.paused = false;
    this.skipped = 0;
    this.heard = performance.now();
    this.came = null;
    this.end = null;
    const asked = new URLSearchParams(location.search).getAll("analysis");
    this.chosen = asked.length ? new Set(asked) : null;
  }

  start() {
    this.connect();
    setInterval(() => this.tick(), 250);
    const button = document.getElementById("top-pause");
    button.addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("keydown", (e) => {
      const typing = e.target.closest?.("input[type=text], textarea");
      if (e.key === "p" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
        this.pause(!this.paused);
      }
    });
  }

  // A browser connects again by itself, until the recording has ended.
  connect() {
    this.events?.close();
    const query = new URLSearchParams([...(this.chosen ?? [])].map((name) => ["analysis", name]));
    this.events = new EventSource(`events?${query}`);
    const hear = (work) => (e) => {
      this.heard = performance.now();
      work(e.data);
    };
    this.events.addEventListener("alive", hear(() => {}));
    this.events.addEventListener("frame", hear((data) => this.receive(JSON.parse(data))));
    this.events.addEventListener("end", hear((data) => {
      this.end = JSON.parse(data);
      this.events.close();
    }));
  }

  receive(frame) {
    this.came = performance.now();
    this.frame = frame;
    if (this.paused) this.skipped += 1;
    else this.show(frame);
  }

  pause(paused) {
    this.paused = paused;
    const button = document.getElementById("top-pause");
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    if (!paused && this.skipped) this.show(this.frame);
    this.skipped = 0;
    this.tick();
  }

  tick() {
    const age = document.getElementById("top-age");
    const since = (moment) => Math.floor((performance.now() - moment) / 1000);
    const quiet = since(this.heard);
    const lost = !this.end && quiet >= QUIET;
    age.classList.toggle("late", lost || this.paused);
    age.textContent = this.end ? "ended"
      : lost ? `no news for ${quiet} s`
      : this.paused ? `paused, ${this.skipped} newer`
      : this.came === null ? "waiting for the first frame"
      : `${since(this.came)} s old`;
    const said = document.getElementById("top-connection");
    const words = this.end ? `The recording has ended. ${this.end.reason ?? ""}`
      : lost ? "The connection is lost; the page connects again by itself." : "";
    said.hidden = !words;
    if (said.textContent !== words) said.textContent = words;
  }

  show(frame) {
    document.title = `${frame.title}: klogger top`;
    const title = document.getElementById("top-title");
    [title.textContent, title.title] = [frame.title, frame.title];
    lines(document.getElementById("top-facts"), frame.facts, "li");
    lines(document.getElementById("top-losses"), frame.losses).hidden = !frame.losses.length;
    lines(document.getElementById("top-notes"), frame.notes, "p", "warning");
    this.showFindings(frame.findings);
    this.showMenu(frame);
    const chosen = this.chosen ?? new Set(frame.first);
    this.showSections(frame.sections.filter((one) => chosen.has(one.name)));
    this.frames += 1;
    this.tick();
  }

  showFindings(findings) {
    document.getElementById("top-findings").replaceChildren(...findings.map((one) => {
      const item = element("li", { textContent: `${one.text} ` });
      item.append(element("a", { href: `#${one.analysis}`, textContent: one.analysis }));
      return item;
    }));
  }

  showMenu(frame) {
    const menu = document.getElementById("top-menu");
    menu.hidden = !frame.menu.length;
    const names = frame.menu.map((one) => one.name).join("\n");
    if (menu.dataset.names !== names) {
      menu.dataset.names = names;
      for (const label of menu.querySelectorAll("label")) label.remove();
      for (const one of frame.menu) {
        const label = element("label", {});
        const box = element("input", { type: "checkbox", value: one.name });
        box.addEventListener("change", () => this.choose());
        label.append(box, ` ${one.title}`);
        menu.append(label);
      }
    }
    const chosen = this.chosen ?? new Set(frame.first);
    for (const box of menu.querySelectorAll("input")) box.checked = chosen.has(box.value);
  }

  choose() {
    const boxes = [...document.querySelectorAll("#top-menu input:checked")];
    this.chosen = boxes.length ? new Set(boxes.map((box) => box.value)) : null;
    const query = new URLSearchParams(boxes.map((box) => ["analysis", box.value]));
    history.replaceState(null, "", `?${query}${location.hash}`);
    this.connect();
    if (this.frame && !this.paused) this.show(this.frame);
  }

  showSections(sections) {
    const main = document.querySelector("main");
    const names = new Set(sections.map((one) => one.name));
    for (const old of [...main.children]) if (!names.has(old.id)) this.drop(old);
    sections.forEach((one, index) => {
      let place = document.getElementById(one.name);
      if (!place) place = element("section", { id: one.name });
      if (main.children[index] !== place) main.insertBefore(place, main.children[index] ?? null);
      const known = new Set(place.querySelectorAll("table.answer"));
      morph(place, one.html);
      for (const table of place.querySelectorAll("table.answer")) {
        if (!known.has(table)) startHead(table);
      }
      this.showPicture(place, one);
    });
  }

  showPicture(section, one) {
    const place = section.querySelector("[data-picture]");
    let picture = this.pictures.get(one.name);
    if (picture && picture.place !== place) {
      picture.end();
      this.pictures.delete(one.name);
      picture = null;
    }
    if (!place || !one.spec) return;
    if (!picture) this.pictures.set(one.name, picture = new Picture(place));
    picture.show(one.spec, one.rows);
  }

  drop(section) {
    this.pictures.get(section.id)?.end();
    this.pictures.delete(section.id);
    section.remove();
  }
}

// For the tests, and for use in the browser's console.
window.klogger = new Page();
window.klogger.start();
