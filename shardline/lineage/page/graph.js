// The graph of versions, with zoom, pan and selection by mouse, touch or keyboard.

const MANY = 12;
const NODE = {width: 208, height: 78};
const READABLE = 0.5, LARGEST = 2.5;

function drawGraph(page, choose) {
  const {width, height, nodes, edges} = page.graph;
  const versions = new Map(page.versions.map((version) => [version.name, version]));
  const camera = svgElement("g", {class: "camera"});
  const svg = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, class: nodes.length > MANY ? "graph tall" : "graph", tabindex: 0, role: "group",
    "aria-label": `Graph of ${formatCount(nodes.length, "version")}. Arrows move it, plus and minus zoom, 0 shows all, Tab goes through the versions.`},
  svgElement("defs", {}, ["", "-on"].map((name) => svgElement("marker", {id: `arrow${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4,
    markerWidth: 7, markerHeight: 7, orient: "auto"}, svgElement("path", {d: "M0 0L8 4L0 8z", class: `arrow${name}`})))), camera);
  const title = (edge) => svgElement("title", {}, `${edge.source} → ${edge.target}: ${edge.label}`);
  const lines = edges.map((edge) => svgElement("path", {d: edge.path, class: "edge"}, title(edge)));
  const labels = edges.map((edge) => svgElement("text", {x: edge.x, y: edge.y + 4, class: "label"}, cut(edge.label, 26), title(edge)));
  const boxes = new Map(nodes.map((node) => [node.version, drawNode(node, versions.get(node.version), page, choose)]));
  camera.append(...lines, ...labels, ...boxes.values());
  const view = makeView(svg, camera, width, height);
  return {svg, view, mark: (name) => mark(name, edges, [lines, labels], boxes), show: (name) => view.show(nodes.find((node) => node.version === name))};
}

function drawNode(node, version, page, choose) {
  const own = (page.findings || []).filter((finding) => finding.version === node.version && finding.severity !== "note");
  const hasErrors = version.problem || own.some((finding) => finding.severity === "error");
  const state = version.absent ? "plain" : hasErrors ? "bad" : (LOOKS[version.status] || LOOKS.unknown)[0];
  const lines = version.absent ? ["not in this root"] : [
    version.snapshots ? `${formatShort(version.records || 0)} records · ${formatSize(version.bytes || 0)}` : "no snapshot yet",
    `${formatCount(version.snapshots || 0, "snapshot")} · ${version.published ? `published @${version.published}` : "none published"}`];
  const label = [node.version, ...lines, own.length ? formatCount(own.length, "finding") : "no findings"].join(", ");
  const pick = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(node.version);
  };
  return svgElement("g", {class: `node ${state}${version.absent ? " absent" : ""}`, transform: `translate(${node.x} ${node.y})`, tabindex: 0,
    role: "button", "aria-label": label, "aria-pressed": "false", "data-version": node.version, click: pick, keydown: pick},
  svgElement("title", {}, label),
  svgElement("rect", {class: "box", width: NODE.width, height: NODE.height, rx: 9}),
  svgElement("rect", {class: "state", x: 10, y: 14, width: 4, height: NODE.height - 28, rx: 2}),
  svgElement("text", {x: 24, y: 27, class: "name"}, cut(node.version, 21)),
  lines.map((line, index) => svgElement("text", {x: 24, y: 47 + 17 * index, class: "small"}, line)),
  own.length > 0 && svgElement("g", {class: "badge", transform: `translate(${NODE.width - 6} 6)`},
    svgElement("circle", {r: 11}), svgElement("text", {y: 4}, own.length > 99 ? "99+" : own.length)));
}

// Highlight the lines to all upstream and downstream versions.
function mark(name, edges, drawings, boxes) {
  const near = new Set();
  for (const [start, end] of [["target", "source"], ["source", "target"]]) {
    const reached = new Set([name]);
    for (const version of reached) {
      edges.forEach((edge, index) => {
        if (edge[start] !== version) return;
        near.add(index);
        reached.add(edge[end]);
      });
    }
  }
  for (const drawing of drawings) drawing.forEach((line, index) => line.classList.toggle("on", near.has(index)));
  for (const [version, box] of boxes) {
    box.classList.toggle("chosen", version === name);
    box.setAttribute("aria-pressed", String(version === name));
  }
}

function makeView(svg, camera, width, height) {
  const offset = {scale: 1, x: 0, y: 0};
  const draw = () => camera.setAttribute("transform", `translate(${offset.x.toFixed(2)} ${offset.y.toFixed(2)}) scale(${offset.scale.toFixed(4)})`);
  const perUnit = () => svg.getScreenCTM()?.a || 1;
  const inside = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
  const zoom = (factor, x = width / 2, y = height / 2) => {
    const most = Math.max(LARGEST / perUnit(), 1);
    const scale = Math.min(Math.max(offset.scale * factor, 0.5), most);
    offset.x = x - ((x - offset.x) * scale) / offset.scale;
    offset.y = y - ((y - offset.y) * scale) / offset.scale;
    offset.scale = scale;
    draw();
  };
  const pan = (x, y) => {
    const loose = 0.9 * offset.scale;
    offset.x = Math.min(Math.max(offset.x + x, -width * loose), width * 0.9);
    offset.y = Math.min(Math.max(offset.y + y, -height * loose), height * 0.9);
    draw();
  };
  const fit = () => {
    Object.assign(offset, {scale: 1, x: 0, y: 0});
    draw();
  };
  // Zoom in on a version that is too small to read. Leave a visible one where it is.
  const show = (node) => {
    if (!node) return;
    const seen = offset.scale * perUnit();
    if (seen < READABLE) zoom(0.8 / seen);
    const [left, top] = [offset.x + node.x * offset.scale, offset.y + node.y * offset.scale];
    const hidden = left < 0 || top < 0 || left + NODE.width * offset.scale > width || top + NODE.height * offset.scale > height;
    if (!hidden && seen >= READABLE) return;
    pan(width / 2 - left - (NODE.width * offset.scale) / 2, height / 2 - top - (NODE.height * offset.scale) / 2);
    // Keep the graph in view.
    offset.x = Math.min(Math.max(offset.x, width * (1 - offset.scale)), 0);
    offset.y = Math.min(Math.max(offset.y, height * (1 - offset.scale)), 0);
    draw();
  };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const point = inside(event.clientX, event.clientY);
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), point.x, point.y);
  }, {passive: false});
  svg.addEventListener("keydown", (event) => {
    const step = 40;
    const moves = {ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step]};
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  addDragging(svg, inside, pan, zoom);
  return {zoom, pan, fit, show};
}

// One pointer pans, two pointers zoom. A press that moved is not a click.
function addDragging(svg, inside, pan, zoom) {
  const pressed = new Map();
  let moved = false;
  const spread = () => {
    const [first, second] = [...pressed.values()];
    return Math.hypot(first.x - second.x, first.y - second.y);
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!pressed.size) moved = false;
    pressed.set(event.pointerId, {x: event.clientX, y: event.clientY});
  });
  svg.addEventListener("pointermove", (event) => {
    const last = pressed.get(event.pointerId);
    if (!last) return;
    if (!moved && Math.hypot(event.clientX - last.x, event.clientY - last.y) < 4) return;
    if (!moved) svg.setPointerCapture(event.pointerId);
    moved = true;
    svg.classList.add("dragged");
    const before = pressed.size === 2 ? spread() : 0;
    const [from, to] = [inside(last.x, last.y), inside(event.clientX, event.clientY)];
    pressed.set(event.pointerId, {x: event.clientX, y: event.clientY});
    if (before) zoom(spread() / before, to.x, to.y);
    else pan(to.x - from.x, to.y - from.y);
  });
  const released = (event) => {
    pressed.delete(event.pointerId);
    if (!pressed.size) svg.classList.remove("dragged");
  };
  svg.addEventListener("pointerup", released);
  svg.addEventListener("pointercancel", released);
  svg.addEventListener("click", (event) => {
    if (!moved) return;
    event.stopPropagation();
    moved = false;
  }, true);
}
