"use strict";
// Draws texts as points; the nearest one to the pointer is read out.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const hidden = new Set();
  const COLOURS = ["#2f7fc1", "#d9742b", "#2f9e5f", "#9a67c7", "#c94a53", "#8a7a3d"];
  const count = data.names.length;
  const hue = (number) => count <= COLOURS.length
    ? COLOURS[number % COLOURS.length]
    : `hsl(${Math.round((360 * number) / count)} 60% ${number % 2 ? 42 : 55}%)`;
  const SPACE = "http://www.w3.org/2000/svg";

  function svgElement(name, attributes) {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function draw() {
    const width = Math.max(byId("map").clientWidth, 280);
    const height = Math.round(Math.min(width * 0.65, 720)), edge = 16;
    const ranges = [0, 1].map((axis) => {
      const values = data.points.map((point) => point[axis]);
      const least = values.reduce((a, b) => Math.min(a, b), Infinity);
      const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return [least, most - least || 1];
    });
    const x = (point) => edge + ((point[0] - ranges[0][0]) / ranges[0][1]) * (width - 2 * edge);
    const y = (point) => height - edge - ((point[1] - ranges[1][0]) / ranges[1][1]) * (height - 2 * edge);
    const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Map of texts" });
    const largest = data.points.length > 2000 ? 2.5 : data.points.length > 300 ? 4 : 6;
    const radius = Math.min(largest, Math.max(width / 110, 2.5));
    const circles = [];
    data.points.forEach((point, number) => {
      const group = data.classes.length ? data.classes[number] : 0;
      if (hidden.has(group)) return;
      const circle = svgElement("circle", { cx: x(point).toFixed(1), cy: y(point).toFixed(1), r: radius, fill: hue(group) });
      svg.append(circle);
      circles.push([x(point), y(point), number, circle]);
    });
    let last = null;
    const tip = byId("tip");
    const leave = () => {
      if (last) last.classList.remove("near");
      last = null;
      tip.hidden = true;
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = width / box.width;
      const at = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      let best = null, least = 18 * 18;
      for (const each of circles) {
        const distance = (each[0] - at[0]) ** 2 + (each[1] - at[1]) ** 2;
        if (distance < least) [best, least] = [each, distance];
      }
      leave();
      if (!best) return;
      last = best[3];
      last.classList.add("near");
      const name = document.createElement("b");
      name.textContent = data.classes.length ? data.names[data.classes[best[2]]] : "";
      tip.replaceChildren(...(name.textContent ? [name] : []), data.texts[best[2]]);
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 12;
      tip.style.left = `${Math.max(Math.min(event.pageX + 14, room), 8)}px`;
      tip.style.top = `${event.pageY + 16}px`;
    });
    svg.addEventListener("pointerleave", leave);
    byId("map").replaceChildren(svg);
  }

  data.names.forEach((name, number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.style.setProperty("--hue", hue(number));
    button.setAttribute("aria-pressed", "true");
    const total = data.classes.filter((each) => each === number).length;
    button.append(document.createElement("i"), `${name || "none"} (${total})`);
    button.addEventListener("click", () => {
      if (hidden.has(number)) hidden.delete(number);
      else hidden.add(number);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      draw();
    });
    byId("legend").append(button);
  });
  window.addEventListener("resize", draw);
  draw();
})();
