"use strict";
// Charts that a reader steps through; site.js has labelled(), SVG and the tables.

const LEFT = 46, RIGHT = 12, TOP = 10, BOTTOM = 34, LEAST_WIDTH = 340, WIDTH = 720, HEIGHT = 380, BAR = 24, NAME = 160, MOST_BARS = 8;

function node(parent, name, attributes, text) {
  const element = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
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
  const element = bar.appendChild(document.createElement("button"));
  element.type = "button";
  element.className = "more";
  element.textContent = text;
  element.onclick = press;
  return element;
}
function paragraph(panel, text, href) {
  const element = panel.appendChild(document.createElement("p"));
  if (href) {
    const link = element.appendChild(document.createElement("a"));
    link.href = href;
    link.textContent = text;
  } else element.textContent = text;
  return element;
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

// ---- How a rung works: a step at a time, by a slider or by itself.

const STEP_MS = 350;

function stepped(figure, last, name, show) {  // show(step) draws a step and returns what it says
  const bar = figure.querySelector(".tools"), panel = figure.querySelector(".panel");
  const slider = labelled(bar, name, "input");
  Object.assign(slider, { type: "range", min: 0, max: last, step: 1, value: 0 });
  let timer = 0;
  const play = button(bar, "Play", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = "0";
    play.textContent = "Pause";
    timer = setInterval(() => { slider.stepUp(); update(); if (slider.value === slider.max) stop(); }, STEP_MS);
  });
  function stop() { clearInterval(timer); timer = 0; play.textContent = "Play"; }
  function update() {
    panel.replaceChildren();
    paragraph(panel, show(Number(slider.value)));
  }
  slider.oninput = () => { stop(); update(); };
  update();
}
const box = (svg, x, y, width, height, kind, text) => {
  node(svg, "rect", { x, y, width, height, class: `box ${kind}` });
  if (text) node(svg, "text", { x: x + width / 2, y: y + height / 2 + 4, class: "middle" }, text);
};

function tile(figure, data) {
  const steps = Math.ceil(data.K / data.depth), shown = Math.min(steps, 24) - 1;
  stepped(figure, shown, "step", step => {
    const width = room(figure), svg = drawing(figure, 330, `A tile of ${data.tile.join(" by ")}; step ${step + 1}`);
    const size = Math.min(210, width - 130), left = 100, top = 100, deep = 70, slab = deep / (shown + 1);
    box(svg, left - deep - 8, top, deep, size, "pale");
    box(svg, left, top - deep - 8, size, deep, "pale");
    box(svg, left - deep - 8 + step * slab, top, slab, size, "busy");
    box(svg, left, top - deep - 8 + step * slab, size, slab, "busy");
    for (let row = 0; row < data.parts[0]; row++)
      for (let column = 0; column < data.parts[1]; column++)
        box(svg, left + column * size / data.parts[1], top + row * size / data.parts[0], size / data.parts[1], size / data.parts[0], "done");
    const own = [size * data.part[0] / data.tile[0], size * data.part[1] / data.tile[1]];
    if (own[0] * own[1] < size * size / 4) box(svg, left, top, own[1], own[0], "busy");
    node(svg, "text", { x: left - deep - 8, y: top + size + 16 }, `${data.tile[0]} ${data.rows[0]}`);
    node(svg, "text", { x: left + size, y: 16, class: "end" }, `${data.tile[1]} ${data.columns[0]}`);
    return `Step ${step + 1} of ${steps}: taps ${step * data.depth} to ${Math.min(data.K, (step + 1) * data.depth) - 1} of ${data.K}. `
      + `${data.parts[0] * data.parts[1]} ${data.of}; a ${data.worker} keeps ${data.part[0]} × ${data.part[1]} sums in registers. `
      + `The whole product: ${data.rows[1]} ${data.rows[0]} × ${data.columns[1]} ${data.columns[0]}.`;
  });
}

function ring(figure, data) {
  const ahead = data.stages - 1, columns = Math.min(data.steps, 4 * data.stages), high = 30, left = 62;
  stepped(figure, columns - 1, "step", step => {
    const svg = drawing(figure, data.stages * high + 40, `Stages at step ${step}`), wide = (room(figure) - left - 8) / columns;
    for (let stage = 0; stage < data.stages; stage++) {
      const y = 8 + stage * high;
      node(svg, "text", { x: 4, y: y + 18 }, `stage ${stage}`);
      for (let item = stage; item < columns + ahead; item += data.stages) {
        const from = Math.max(0, item - ahead), to = Math.min(item, columns);
        if (to > from) box(svg, left + from * wide, y + 3, (to - from) * wide, high - 6, from <= step && step < to ? "pale chosen" : "pale");
        if (item < columns) box(svg, left + item * wide, y + 3, wide, high - 6, item === step ? "busy chosen" : "busy", wide > 16 ? String(item) : "");
      }
    }
    const end = 8 + data.stages * high;
    node(svg, "line", { x1: left + (step + .5) * wide, x2: left + (step + .5) * wide, y1: 4, y2: end, class: "step" });
    node(svg, "text", { x: left, y: end + 20 }, `time; dark: ${data.products}, pale: ${data.copies}`);
    const flying = [...Array(ahead).keys()].map(i => step + 1 + i).filter(item => item < data.steps);
    return `Step ${step} of ${data.steps}: K tile ${step} is multiplied in stage ${step % data.stages}`
      + (flying.length > 1 ? `, K tiles ${flying[0]} to ${flying[flying.length - 1]} are in flight.` : flying.length ? `, K tile ${flying[0]} is in flight.` : ".");
  });
}

function waves(figure, data) {
  const full = Math.floor(data.tiles / data.slots), rest = data.tiles % data.slots, parts = 8;
  const end = data.cut ? data.tiles / data.slots : Math.ceil(data.tiles / data.slots), last = Math.ceil(end * parts);
  stepped(figure, last, "time", step => {
    const time = Math.min(end, step / parts), high = 80, svg = drawing(figure, Math.ceil(end) * high + 30, `Blocks at wave ${time}`);
    const left = 40, wide = (room(figure) - left - 8) / data.slots;
    for (let wave = 0; wave < end; wave++) {
      node(svg, "text", { x: 4, y: 20 + wave * high }, `${wave + 1}`);
      const share = data.cut && wave === full ? rest / data.slots : 1, slots = wave < full || data.cut ? data.slots : rest;
      const done = Math.max(0, Math.min(share, time - wave));
      node(svg, "rect", { x: left, y: 8 + wave * high, width: slots * wide, height: share * high - 3, class: "box pale" });
      if (done) node(svg, "rect", { x: left, y: 8 + wave * high, width: slots * wide, height: done * high - 3, class: "box busy" });
    }
    for (let slot = 0; slot <= data.slots; slot += Math.ceil(4 / wide)) node(svg, "line", { x1: left + slot * wide, x2: left + slot * wide, y1: 8, y2: 8 + end * high, class: "grid" });
    const running = time >= end ? 0 : time < full || data.cut ? data.slots : rest;
    return `${data.tiles} tiles, ${data.slots} blocks at a time: ${end.toFixed(2)} waves. At ${time.toFixed(2)}: ${running} blocks run. `
      + `${(100 * data.tiles / data.slots / end).toFixed(0)} % of the time of all blocks is work.`;
  });
}

function winograd(figure, data) {
  stepped(figure, data.tiles - 1, "tile", step => {
    const inputs = data.row + data.taps - 1, first = step * data.outputs, outputs = Math.min(data.outputs, data.row - first);
    const svg = drawing(figure, 150, `Winograd tile ${step}`), wide = (room(figure) - 70) / inputs;
    const row = (y, name, count, from, to, skip) => {
      node(svg, "text", { x: 4, y: y + 20 }, name);
      for (let i = 0; i < count; i++) box(svg, 62 + (i + skip) * wide, y, wide - 2, 30, from <= i && i < to ? "busy" : "pale");
    };
    row(8, "inputs", inputs, first, first + data.points, 0);
    row(58, "products", data.points, 0, data.points, first);
    row(108, "outputs", data.row, first, first + outputs, (data.taps - 1) / 2);
    return `Tile ${step + 1} of ${data.tiles}: ${data.points} inputs, ${data.points} products with the transformed filter, ${outputs} outputs; `
      + `directly ${data.outputs} outputs of ${data.taps} taps take ${data.outputs * data.taps} products.`;
  });
}

// ---- Source beside machine code: a line's instructions, an instruction's line.

function listing(figure, data) {
  const bar = figure.querySelector(".tools"), at = figure.querySelector(".scroll"), panel = figure.querySelector(".panel");
  const kernel = select(bar, "kernel", Object.keys(data.kernels), Object.keys(data.kernels)[0], kernelChosen);
  const file = select(bar, "file", [], "", fileChosen);
  at.className = "listing";
  const [source, code] = ["source", "machine code"].map(name => {
    const pane = at.appendChild(document.createElement("div"));
    Object.assign(pane, { tabIndex: 0, className: "pane" });
    pane.setAttribute("role", "region");
    pane.setAttribute("aria-label", name);
    return pane;
  });
  const line = (pane, share, text, press) => {
    const element = pane.appendChild(document.createElement("button"));
    element.type = "button";
    const part = element.appendChild(document.createElement("small"));
    part.textContent = share >= .05 ? share.toFixed(1) : "";
    element.append(text || " ");
    element.onclick = press;
    return element;
  };
  let rows = [], shown = new Map();
  const cycles = place => rows.reduce((sum, row) => sum + (row[2] === place ? row[1] : 0), 0);

  function kernelChosen() {
    rows = data.kernels[kernel.value];
    const sums = new Map();
    for (const [, share, place] of rows) sums.set(place.split(":")[0], (sums.get(place.split(":")[0]) ?? 0) + share);
    const files = Object.keys(data.files).filter(name => sums.has(name)).sort((a, b) => sums.get(b) - sums.get(a));
    file.replaceChildren(...files.map(name => new Option(name, name)));
    code.replaceChildren();
    rows.forEach((row, i) => { row.node = line(code, row[1], `${(16 * i).toString(16).padStart(4, "0")}  ${row[0]}`, () => choose(row[2], row)); });
    fileChosen();
    const costly = rows.filter(row => shown.has(row[2])).reduce((best, row) => !best || cycles(row[2]) > cycles(best[2]) ? row : best, null);
    if (costly) choose(costly[2]);
    if (costly) choose(costly[2], costly);
  }
  function fileChosen() {
    source.replaceChildren();
    shown = new Map();
    (data.files[file.value] ?? []).forEach((text, i) => {
      const place = `${file.value}:${i + 1}`, own = rows.filter(row => row[2] === place);
      const element = line(source, cycles(place), `${String(i + 1).padStart(3)}  ${text}`, () => choose(place));
      element.disabled = !own.length;
      shown.set(place, element);
    });
    panel.replaceChildren();
    paragraph(panel, `${rows.length} instructions.`);
  }
  function choose(place, chosen) {
    const name = place.split(":")[0];
    if (name !== file.value && data.files[name]) { file.value = name; fileChosen(); }
    const own = rows.filter(row => row[2] === place);
    for (const row of rows) row.node.classList.toggle("chosen", row[2] === place);
    for (const [other, node] of shown) node.classList.toggle("chosen", other === place);
    if (!chosen && own.length) code.scrollTop = own[0].node.offsetTop - code.offsetTop - 40;
    if (chosen && shown.has(place)) source.scrollTop = shown.get(place).offsetTop - source.offsetTop - 40;
    panel.replaceChildren();
    paragraph(panel, `${place}: ${own.length} of ${rows.length} instructions, ${cycles(place).toFixed(1)} % of the cycles.`);
  }
  kernelChosen();
}

for (const figure of document.querySelectorAll(".chart"))
  ({ roofline, batches, tile, ring, waves, winograd, listing })[figure.dataset.kind](figure, JSON.parse(figure.querySelector("script").textContent));
