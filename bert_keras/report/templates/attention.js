"use strict";
// Draws the attention of texts as bertviz does: lines from queries to keys.
(() => {
  const texts = JSON.parse(document.getElementById("data").textContent).texts;
  const byId = (id) => document.getElementById(id);
  const hue = (head, count) => `hsl(${Math.round((360 * head) / count + 210) % 360} 62% 48%)`;
  const state = { text: 0, view: "heads", layer: 0, head: 0, filter: "all", token: null, heads: new Set() };
  let shown; // arrays of the text that is drawn

  function bytes(text, kind) {
    const raw = atob(text);
    const found = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
    return new kind(found.buffer);
  }

  function open(number) {
    const text = texts[number];
    const [layers, heads, length, width] = text.shape;
    const shades = bytes(text.probabilities, Uint8Array);
    const vectors = {};
    for (const name of ["queries", "keys"]) {
      vectors[name] = bytes(text[name].values, Int8Array);
    }
    shown = {
      ...text, layers, heads, length, width,
      probability(layer, head, from, to) {
        const shade = shades[((layer * heads + head) * length + from) * length + to] / 255;
        return shade * shade;
      },
      vector(name, layer, head, token) {
        const start = ((layer * heads + head) * length + token) * width;
        const part = vectors[name].subarray(start, start + width);
        return Array.from(part, (value) => (value * text[name].largest) / 127);
      },
    };
    state.text = number;
    state.token = null;
    state.layer = Math.min(state.layer, layers - 1);
    state.head = Math.min(state.head, heads - 1);
    if (!state.heads.size) for (let head = 0; head < heads; head++) state.heads.add(head);
  }

  const isPair = () => shown.segments.some((segment) => segment > 0);
  function isKept(from, to) {
    if (!isPair() || state.filter === "all") return true;
    const [a, b] = state.filter.split("");
    return shown.segments[from] === (a === "A" ? 0 : 1) && shown.segments[to] === (b === "A" ? 0 : 1);
  }

  function element(name, attributes = {}, ...children) {
    const svg = ["svg", "line", "text", "g", "rect"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function options(select, names, chosen) {
    select.replaceChildren(...names.map(([value, name]) => {
      const option = element("option", { value }, name);
      option.selected = String(value) === String(chosen);
      return option;
    }));
  }

  // Lines of some heads of a layer, between two columns of tokens.
  function lines(layer, heads) {
    const row = 19, top = 8, letters = Math.max(...shown.tokens.map((token) => token.length));
    const label = Math.min(Math.max(letters * 8 + 8, 60), 130);
    const room = Math.min(byId("view").clientWidth || 640, 760);
    const gap = Math.max(room - 2 * label - 8, 110);
    const width = gap + 2 * label + 8, height = shown.length * row + 2 * top;
    const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    const drawn = element("g"), stripes = element("g");
    svg.append(stripes, drawn);
    const y = (token) => top + row * token + row / 2;
    const left = label, right = label + gap;
    const fill = () => {
      drawn.replaceChildren();
      stripes.replaceChildren();
      for (let from = 0; from < shown.length; from++) {
        if (state.token !== null && from !== state.token) continue;
        for (const [place, head] of heads.entries()) {
          for (let to = 0; to < shown.length; to++) {
            if (!isKept(from, to)) continue;
            const p = shown.probability(layer, head, from, to);
            const opacity = state.token === null ? p / Math.sqrt(heads.length) : p;
            if (opacity < 0.01) continue;
            drawn.append(element("line", {
              x1: left, y1: y(from), x2: right, y2: y(to), stroke: hue(head, shown.heads),
              "stroke-width": 2, "stroke-opacity": opacity.toFixed(3),
            }));
            if (state.token !== null) {
              stripes.append(element("rect", {
                x: right + 4 + (place * (label - 4)) / heads.length, y: y(to) - row / 2,
                width: (label - 4) / heads.length, height: row,
                fill: hue(head, shown.heads), "fill-opacity": p.toFixed(3),
              }));
            }
          }
        }
      }
    };
    shown.tokens.forEach((token, number) => {
      const short = token.length > 15 ? `${token.slice(0, 14)}…` : token;
      const before = element("g", { class: "token" }, element("rect", {
        x: 0, y: y(number) - row / 2, width: label, height: row, fill: "transparent",
      }), element("text", { x: left - 5, y: y(number) + 4, "text-anchor": "end" }, short));
      before.addEventListener("mouseenter", () => { state.token = number; fill(); });
      before.addEventListener("click", () => { state.token = number; fill(); });
      before.addEventListener("mouseleave", () => { state.token = null; fill(); });
      svg.append(before, element("text", { x: right + 6, y: y(number) + 4 }, short));
    });
    fill();
    return svg;
  }

  function drawHeads() {
    byId("hint").textContent = "Point at a token on the left to see where it looks. Click a head to switch it, double-click to see it alone.";
    byId("view").replaceChildren(lines(state.layer, [...state.heads].sort((a, b) => a - b)));
  }

  function thumbnail(layer, head, size) {
    const scale = window.devicePixelRatio || 1;
    const canvas = element("canvas", {
      width: size * scale, height: size * scale, style: `width: ${size}px; height: ${size}px`,
      title: `layer ${layer}, head ${head}`, role: "button", tabindex: 0,
    });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.strokeStyle = hue(head, shown.heads);
    const step = size / shown.length;
    for (let from = 0; from < shown.length; from++) {
      for (let to = 0; to < shown.length; to++) {
        const p = shown.probability(layer, head, from, to);
        if (p < 0.04 || !isKept(from, to)) continue;
        context.globalAlpha = p;
        context.beginPath();
        context.moveTo(4, step * (from + 0.5));
        context.lineTo(size - 4, step * (to + 0.5));
        context.stroke();
      }
    }
    const show = () => {
      state.layer = layer;
      state.heads = new Set([head]);
      state.view = "heads";
      draw();
    };
    canvas.addEventListener("click", show);
    canvas.addEventListener("keydown", (event) => { if (event.key === "Enter") show(); });
    return canvas;
  }

  function drawModel() {
    byId("hint").textContent = "A row is a layer, a column a head. Click one to enlarge it.";
    const size = Math.max(Math.min(Math.floor(((byId("view").clientWidth || 640) - 60) / shown.heads) - 4, 96), 48);
    const head = element("tr", {}, element("th"));
    for (let number = 0; number < shown.heads; number++) head.append(element("th", {}, String(number)));
    const body = element("tbody");
    for (let layer = 0; layer < shown.layers; layer++) {
      const row = element("tr", {}, element("th", {}, String(layer)));
      for (let number = 0; number < shown.heads; number++) row.append(element("td", {}, thumbnail(layer, number, size)));
      body.append(row);
    }
    byId("view").replaceChildren(element("table", { class: "grid" }, element("thead", {}, head), body));
  }

  // A row of cells: blue above zero, orange below.
  function strip(values, largest) {
    const cell = Math.max(Math.floor(160 / values.length), 2), height = 13;
    const canvas = element("canvas", { width: cell * values.length, height });
    const context = canvas.getContext("2d");
    values.forEach((value, place) => {
      context.globalAlpha = Math.min(Math.abs(value) / (largest || 1), 1);
      context.fillStyle = value > 0 ? "#2f7fc1" : "#e07b2a";
      context.fillRect(cell * place, 0, cell, height);
    });
    return canvas;
  }

  function drawNeurons() {
    byId("hint").textContent = "Click a token: its query q meets the key k of each token. Blue is above zero, orange below.";
    const from = state.token === null ? 0 : state.token;
    const { layer, head } = state;
    const query = shown.vector("queries", layer, head, from);
    const keys = shown.tokens.map((_, token) => shown.vector("keys", layer, head, token));
    const products = keys.map((key) => key.map((value, place) => value * query[place]));
    const most = (rows) => Math.max(...rows.flat().map(Math.abs));
    const head_ = element("tr", {});
    for (const name of ["Token", "Query q", "Key k", "q × k", "q · k / √D", "Softmax"]) head_.append(element("th", { scope: "col" }, name));
    const body = element("tbody");
    shown.tokens.forEach((token, to) => {
      const p = shown.probability(layer, head, from, to);
      const dot = products[to].reduce((sum, value) => sum + value, 0) / Math.sqrt(shown.width);
      const bar = element("i", { style: `width: ${(100 * p).toFixed(1)}%` });
      const name = element("th", { scope: "row" }, token);
      name.addEventListener("click", () => { state.token = to; drawNeurons(); });
      const row = element("tr", to === from ? { class: "chosen" } : {}, name,
        element("td", {}, to === from ? strip(query, most([query])) : ""),
        element("td", {}, strip(keys[to], most(keys))),
        element("td", {}, strip(products[to], most(products))),
        element("td", { class: "number" }, dot.toFixed(2)),
        element("td", { class: "wide", title: `${(100 * p).toFixed(1)}%` }, bar));
      body.append(row);
    });
    byId("view").replaceChildren(element("table", { class: "neurons" }, element("thead", {}, head_), body));
  }

  function drawChips() {
    const chips = byId("chips");
    chips.hidden = state.view !== "heads";
    chips.style.display = chips.hidden ? "none" : "";
    chips.replaceChildren();
    for (let head = 0; head < shown.heads; head++) {
      const chip = element("button", {
        type: "button", "aria-pressed": state.heads.has(head), style: `--hue: ${hue(head, shown.heads)}`, title: `head ${head}`,
      }, String(head));
      chip.addEventListener("click", () => {
        if (state.heads.has(head)) state.heads.delete(head);
        else state.heads.add(head);
        draw();
      });
      chip.addEventListener("dblclick", () => {
        state.heads = new Set([head]);
        draw();
      });
      chips.append(chip);
    }
  }

  function draw() {
    options(byId("layer"), Array.from({ length: shown.layers }, (_, n) => [n, n]), state.layer);
    options(byId("head"), Array.from({ length: shown.heads }, (_, n) => [n, n]), state.head);
    byId("layer-field").hidden = state.view === "model";
    byId("head-field").hidden = state.view !== "neurons";
    byId("filter-field").hidden = !isPair() || state.view === "neurons";
    for (const tab of document.querySelectorAll("[data-view]")) {
      tab.setAttribute("aria-selected", tab.dataset.view === state.view);
    }
    drawChips();
    ({ heads: drawHeads, model: drawModel, neurons: drawNeurons })[state.view]();
    if (shown.isCut) byId("hint").textContent += ` The first ${shown.length} tokens are shown.`;
  }

  if (!texts.length) {
    byId("hint").textContent = "There is no text.";
    return;
  }
  options(byId("text"), texts.map((text, number) => {
    const line = text.tokens.slice(1, -1).join(" ").replaceAll(" ##", "");
    return [number, `${number + 1}: ${line.length > 40 ? `${line.slice(0, 39)}…` : line}`];
  }), 0);
  options(byId("filter"), [["all", "all"], ["AA", "A → A"], ["AB", "A → B"], ["BA", "B → A"], ["BB", "B → B"]], "all");
  byId("text").addEventListener("change", (event) => { open(Number(event.target.value)); draw(); });
  byId("layer").addEventListener("change", (event) => { state.layer = Number(event.target.value); draw(); });
  byId("head").addEventListener("change", (event) => { state.head = Number(event.target.value); draw(); });
  byId("filter").addEventListener("change", (event) => { state.filter = event.target.value; draw(); });
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.addEventListener("click", () => { state.view = tab.dataset.view; draw(); });
  }
  window.addEventListener("resize", () => draw());
  const [, view, layer] = location.hash.match(/^#(heads|model|neurons)(?:-(\d+))?$/) || [];
  if (view) state.view = view;
  if (layer) state.layer = Number(layer);
  open(0);
  draw();
})();
