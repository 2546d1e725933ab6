"use strict";
// Charts that a reader steps through; site.js has labelled(), SVG and the tables.

const LEFT = 46, RIGHT = 12, TOP = 10, BOTTOM = 34, LEAST_WIDTH = 340, WIDTH = 720, HEIGHT = 380, BAR = 24, NAME = 160, MOST_BARS = 8;

function node(parent, name, attributes, text) {
  const found = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}
const room = figure => Math.max(LEAST_WIDTH, Math.min(WIDTH, figure.querySelector(".scroll").clientWidth || WIDTH));
function drawing(figure, height, label) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${room(figure)} ${height}`, role: "img", "aria-label": label })) svg.setAttribute(key, value);
  figure.querySelector(".scroll").replaceChildren(svg);
  return svg;
}
const digits = value => value < 1000 ? value.toPrecision(3) : value.toFixed(0);
const faster = ratio => ratio >= 1 ? `${ratio.toFixed(2)}× faster` : `${(1 / ratio).toFixed(2)}× slower`;

function select(bar, name, values, chosen, change) {
  const choice = labelled(bar, name, "select");
  choice.append(...values.map(value => new Option(value, value)));
  choice.value = chosen;
  choice.onchange = change;
  return choice;
}
function button(bar, text, press) {
  const found = bar.appendChild(document.createElement("button"));
  found.type = "button";
  found.className = "more";
  found.textContent = text;
  found.onclick = press;
  return found;
}
function paragraph(panel, text, href) {
  const found = panel.appendChild(document.createElement("p"));
  if (href) {
    const link = found.appendChild(document.createElement("a"));
    link.href = href;
    link.textContent = text;
  } else found.textContent = text;
  return found;
}

// ---- The ladder under its roofs: a dot per rung, the chosen one and its parent joined by a line.

function roofline(figure, data) {
  const bar = figure.querySelector(".tools"), panel = figure.querySelector(".panel");
  const layer = select(bar, "layer", data.layers, data.layers[Math.min(2, data.layers.length - 1)], () => choose(0));
  const kind = select(bar, "class", ["all", ...data.classes], data.classes[0], () => choose(0));
  const back = button(bar, "Previous", () => choose(at - 1)), on = button(bar, "Next", () => choose(at + 1));
  let at = 0;
  const here = () => data.points.filter(each => String(each.layer) === layer.value && (kind.value === "all" || each.class === kind.value));

  function choose(place) {
    const points = here(), rungs = points.filter(each => !each.peer), peers = points.filter(each => each.peer);
    at = Math.max(0, Math.min(rungs.length - 1, place));
    draw(points, rungs[at]);
    back.disabled = at === 0;
    on.disabled = at >= rungs.length - 1;
    panel.replaceChildren();
    if (!rungs[at]) return;
    const rung = rungs[at], parent = data.points.find(each => each.layer === rung.layer && each.name === rung.parent);
    paragraph(panel, `${at + 1} of ${rungs.length}: ${rung.name}`, rung.href);
    const gain = parent ? `; ${faster(parent.ms / rung.ms)} than its parent ${parent.name}` : "";
    paragraph(panel, `${digits(rung.ms)} ms, ${digits(rung.y)} TFLOP/s${gain}`);
    paragraph(panel, rung.text);
    for (const peer of peers.filter(each => each.class === rung.class))
      paragraph(panel, `${peer.name}: ${digits(peer.ms)} ms${peer.text ? `, ${peer.text}` : ""}; ${rung.name} is ${faster(peer.ms / rung.ms)}`);
  }

  function draw(points, chosen) {
    const width = room(figure), right = width - RIGHT;
    const xs = points.map(each => each.x), ys = points.map(each => each.y);
    const low = [Math.min(...xs) / 3, Math.min(...ys) / 2], high = [Math.max(...xs) * 3, Math.max(...data.roofs.map(roof => roof.rate)) * 1.6];
    const span = (value, i) => (Math.log(value) - Math.log(low[i])) / (Math.log(high[i]) - Math.log(low[i]));
    const x = value => LEFT + span(value, 0) * (right - LEFT), y = value => HEIGHT - BOTTOM - span(value, 1) * (HEIGHT - TOP - BOTTOM);
    const svg = drawing(figure, HEIGHT, `Roofline of layer ${layer.value}: ${points.length} points; chosen: ${chosen?.name}`);
    for (let i = 0; i < 2; i++)
      for (let power = Math.ceil(Math.log10(low[i])); power <= Math.log10(high[i]); power++) {
        const value = 10 ** power, text = value >= 1 ? String(value) : value.toPrecision(1);
        if (i) {
          node(svg, "line", { x1: LEFT, x2: right, y1: y(value), y2: y(value), class: "grid" });
          node(svg, "text", { x: LEFT - 6, y: y(value) + 4, class: "end" }, text);
        } else {
          node(svg, "line", { x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM, class: "grid" });
          node(svg, "text", { x: x(value), y: HEIGHT - BOTTOM + 15, class: "middle" }, text);
        }
      }
    node(svg, "text", { x: (LEFT + width) / 2, y: HEIGHT - 4, class: "middle" }, "FLOP per byte");
    node(svg, "text", { x: LEFT + 4, y: TOP + 10 }, "TFLOP/s");
    for (const roof of data.roofs) {
      const own = roof.name === chosen?.roof, ridge = roof.rate / data.bandwidth;
      const start = Math.max(low[0], low[1] / data.bandwidth);
      const corner = Math.min(Math.max(ridge, start), high[0]);
      const slope = ridge > start ? `M${x(start)} ${y(start * data.bandwidth)}L${x(corner)} ${y(Math.min(roof.rate, corner * data.bandwidth))}` : `M${x(low[0])} ${y(roof.rate)}`;
      node(svg, "path", { d: `${slope}${ridge < high[0] ? `H${right}` : ""}`, class: own ? "roof own" : "roof" });
      if (own) node(svg, "text", { x: Math.min(x(corner) + 6, right - 160), y: y(roof.rate) - 5 }, `${roof.name}: ${digits(roof.rate)} TFLOP/s`);
    }
    const parent = chosen && data.points.find(each => each.layer === chosen.layer && each.name === chosen.parent);
    if (parent && points.includes(parent)) node(svg, "line", { x1: x(parent.x), y1: y(parent.y), x2: x(chosen.x), y2: y(chosen.y), class: "step" });
    const rungs = points.filter(each => !each.peer);
    for (const each of points) {
      const mark = each.peer
        ? node(svg, "rect", { x: x(each.x) - 5, y: y(each.y) - 5, width: 10, height: 10, class: "peer" })
        : node(svg, "circle", { cx: x(each.x), cy: y(each.y), r: each === chosen ? 8 : 5, stroke: each.colour, fill: each.counted ? each.colour : "none", class: each === chosen ? "dot chosen" : "dot" });
      node(mark, "title", {}, `${each.name}: ${digits(each.ms)} ms, ${digits(each.y)} TFLOP/s`);
      if (!each.peer) mark.onclick = () => choose(rungs.indexOf(each));
    }
    if (chosen) {
      const left = x(chosen.x) > width / 2;
      node(svg, "text", { x: x(chosen.x) + (left ? -12 : 12), y: y(chosen.y) + 4, class: left ? "name end" : "name" }, chosen.name);
    }
  }
  choose(0);
}

// ---- The fastest kernels at a batch size: bars, the shortest first.

function batches(figure, data) {
  const bar = figure.querySelector(".tools"), panel = figure.querySelector(".panel");
  const kind = select(bar, "class", data.classes, data.classes[0], show);
  const size = labelled(bar, "N", "input"), shown = bar.appendChild(document.createElement("output"));
  Object.assign(size, { type: "range", min: 0, max: data.sizes.length - 1, step: 1 });
  size.value = String(Math.max(0, data.sizes.indexOf(128)));
  size.oninput = show;

  function show() {
    const N = data.sizes[size.value];
    const rows = data.rows.filter(each => each.N === N && each.class === kind.value).sort((a, b) => a.ms - b.ms);
    const ours = rows.filter(each => each.colour), peer = rows.find(each => !each.colour);
    const bars = [...ours.slice(0, MOST_BARS), ...(peer ? [peer] : [])].sort((a, b) => a.ms - b.ms);
    shown.textContent = String(N);
    size.setAttribute("aria-valuetext", `N = ${N}`);
    const svg = drawing(figure, bars.length * BAR + 8, `Kernel times at N = ${N}, ${kind.value}`);
    const most = Math.max(...bars.map(each => each.ms));
    bars.forEach((each, i) => {
      const y = 4 + i * BAR, width = Math.max(2, each.ms / most * (room(figure) - NAME - 70));
      node(svg, "text", { x: NAME - 8, y: y + 15, class: "end" }, each.name);
      node(svg, "rect", { x: NAME, y: y + 3, width, height: BAR - 6, ...(each.colour ? { fill: each.colour } : { class: "peer" }) });
      node(svg, "text", { x: NAME + width + 6, y: y + 15 }, `${digits(each.ms)} ms`);
    });
    panel.replaceChildren();
    if (!ours.length) paragraph(panel, `No rung of the class was timed at N = ${N}.`);
    else paragraph(panel, `N = ${N}: ${ours[0].name}, ${digits(ours[0].ms / N * 1000)} µs per image` + (peer ? `, ${faster(peer.ms / ours[0].ms)} than cuDNN` : ""));
  }
  show();
}

for (const figure of document.querySelectorAll(".chart"))
  ({ roofline, batches })[figure.dataset.kind](figure, JSON.parse(figure.querySelector("script").textContent));
