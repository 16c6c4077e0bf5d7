// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Flame graphs: each frame is a box on top of its caller, as wide as its share. A click or Enter
// shows a frame alone with what it called, Escape shows all; arrows go from frame to frame.

// Boxes that are narrower than this part of the graph are not drawn.
const FLAME_NARROWEST = 0.001;
const FLAME_ROW = 19;
// A name in a box of fewer pixels cannot be read.
const FLAME_NAMED = 22;

// [name, value, children, value before] with what is above and where it stands.
function flameNode([name, value, children, before], above, at) {
  const node = { name, value, before, above, at, depth: above ? above.depth + 1 : 0, children: [] };
  for (const child of children) {
    node.children.push(flameNode(child, node, at));
    at += child[1];
  }
  return node;
}

// The colour of a name is always the same; the kernel's and what is missing are told apart.
function flameColour(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.charCodeAt(0)) >>> 0;
  if (/^[[(].*[\])]$/.test(name)) return "hsl(220 8% 70%)";
  if (name.endsWith("_[k]")) return `hsl(${24 + hash % 14} 85% ${64 + hash % 8}%)`;
  return `hsl(${44 + hash % 16} 80% ${62 + hash % 10}%)`;
}

// Red is more than before, blue less, the stronger the greater the change.
function flameChange(node) {
  const most = Math.max(node.value, node.before) || 1;
  const change = (node.value - node.before) / most;
  const strength = Math.min(1, Math.abs(change) * 1.5);
  return `hsl(${change > 0 ? 5 : 212} ${Math.round(85 * strength)}% ${88 - 22 * strength}%)`;
}

class Flame {
  constructor(place, data) {
    this.place = place;
    this.unit = data.unit;
    this.all = this.shown = flameNode(data.root, null, 0);
    this.words = "";
    this.field = element("input", { type: "search", placeholder: "Search functions" });
    this.field.setAttribute("aria-label", "Mark the functions with this text in their names");
    this.reset = element("button", { type: "button", textContent: "show all" });
    this.said = element("span", { className: "found" });
    this.said.setAttribute("role", "status");
    const controls = element("div", { className: "controls" });
    controls.append(this.field, this.reset, this.said);
    this.graph = element("div", { className: "boxes" });
    this.graph.setAttribute("role", "tree");
    this.status = element("div", { className: "status found" });
    place.append(controls, this.graph, this.status);
    if (data.omitted) {
      place.append(element("p", {
        className: "note",
        textContent: `(others): ${data.omitted} frames of less than 0.1 % each, added up.`,
      }));
    }
    this.field.addEventListener("input", () => this.search(this.field.value));
    this.reset.addEventListener("click", () => this.zoom(this.all));
    this.graph.addEventListener("click", (e) => this.on(e, (node) => this.zoom(node)));
    this.graph.addEventListener("mouseover", (e) => this.on(e, (node) => this.tell(node)));
    this.graph.addEventListener("focusin", (e) => this.on(e, (node) => this.tell(node)));
    this.graph.addEventListener("keydown", (e) => this.press(e));
    this.draw();
  }

  on(event, act) {
    const box = event.target.closest(".box");
    if (box) act(box.node);
  }

  amount(value) {
    return this.unit === "ns" ? duration(value) : `${rounded(value, 0)} ${this.unit}`;
  }

  share(value, whole) {
    return `${rounded(whole ? 100 * value / whole : 0, 2)} %`;
  }

  text(node) {
    const of = this.shown === this.all ? "" : `, ${this.share(node.value, this.shown.value)} of ` +
      `${this.shown.name}`;
    return `${node.name}: ${this.amount(node.value)}, ${this.share(node.value, this.all.value)}` +
      ` of all${of}${this.change(node)}`;
  }

  change(node) {
    if (node.before === undefined) return "";
    const more = node.value - node.before;
    return `; before: ${this.amount(node.before)} (${more < 0 ? "−" : "+"}` +
      `${this.amount(Math.abs(more))})`;
  }

  tell(node) {
    this.status.textContent = this.text(node);
  }

  // All frames of the view that are wide enough, and those below it.
  visible() {
    const found = [];
    for (let node = this.shown.above; node; node = node.above) found.push(node);
    const inner = (node) => {
      if (node.value < this.shown.value * FLAME_NARROWEST) return;
      found.push(node);
      node.children.forEach(inner);
    };
    inner(this.shown);
    return found;
  }

  draw() {
    const nodes = this.visible();
    const deepest = nodes.reduce((most, node) => Math.max(most, node.depth), 0);
    this.graph.style.height = `${(deepest + 1) * FLAME_ROW}px`;
    this.boxes = new Map(nodes.map((node) => [node, this.box(node, deepest)]));
    this.graph.replaceChildren(...this.boxes.values());
    this.boxes.get(this.shown).tabIndex = 0;
    this.reset.disabled = this.shown === this.all;
    this.mark();
  }

  box(node, deepest) {
    const below = node.depth < this.shown.depth;
    const whole = this.shown.value || 1;
    const named = below || node.value / whole * this.graph.clientWidth > FLAME_NAMED;
    const box = element("div", {
      className: below ? "box below" : "box", textContent: named ? node.name : "",
      title: this.text(node), tabIndex: -1,
    });
    box.node = node;
    box.setAttribute("role", "treeitem");
    box.setAttribute("aria-level", node.depth + 1);
    box.setAttribute("aria-label", this.text(node));
    box.style.left = below ? "0" : `${100 * (node.at - this.shown.at) / whole}%`;
    box.style.width = below ? "100%" : `${100 * node.value / whole}%`;
    box.style.top = `${(deepest - node.depth) * FLAME_ROW}px`;
    box.style.background = node.before === undefined ? flameColour(node.name) : flameChange(node);
    return box;
  }

  zoom(node) {
    this.shown = node;
    const held = this.graph.contains(document.activeElement);
    this.draw();
    if (held) this.boxes.get(node).focus();
    this.tell(node);
  }

  search(words) {
    this.words = words.toLowerCase();
    this.mark();
  }

  // A frame within another one that is found is not counted again.
  mark() {
    const has = (node) => this.words !== "" && node.name.toLowerCase().includes(this.words);
    const sum = (node) => has(node) ? node.value : node.children.reduce((n, c) => n + sum(c), 0);
    for (const [node, box] of this.boxes) box.classList.toggle("hit", has(node));
    this.graph.classList.toggle("searched", this.words !== "");
    const found = sum(this.shown);
    this.said.textContent = this.words === ""
      ? ""
      : `found: ${this.amount(found)}, ${this.share(found, this.shown.value)}`;
  }

  press(e) {
    const node = e.target.node;
    if (!node) return;
    const beside = (step) => {
      const all = node.above?.children ?? [node];
      return all[all.indexOf(node) + step];
    };
    const next = {
      ArrowUp: () => node.children[0], ArrowDown: () => node.above,
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
    }[e.key]?.();
    if (e.key === "Enter" || e.key === " ") this.zoom(node);
    else if (e.key === "Escape") this.zoom(this.all);
    else if (next && this.boxes.has(next)) this.boxes.get(next).focus();
    else if (!e.key.startsWith("Arrow")) return;
    e.preventDefault();
  }
}

function startFlames() {
  const data = JSON.parse(document.getElementById("flames")?.textContent ?? "{}");
  const places = [...document.querySelectorAll("[data-flame]")];
  return places.map((place) => new Flame(place, data[place.dataset.flame]));
}
