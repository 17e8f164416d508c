// The graph of versions: it can be zoomed, moved and chosen from, by mouse, finger or keyboard.

const MANY = 12;
const NODE = {width: 208, height: 78};
const READABLE = 0.5, LARGEST = 2.5;

function graphOf(page, choose) {
  const {width, height, nodes, edges} = page.graph;
  const versions = new Map(page.versions.map((one) => [one.name, one]));
  const camera = drawn("g", {class: "camera"});
  const svg = drawn("svg", {viewBox: `0 0 ${width} ${height}`, class: nodes.length > MANY ? "graph tall" : "graph", tabindex: 0, role: "group",
    "aria-label": `Graph of ${counted(nodes.length, "version")}. Arrows move it, plus and minus zoom, 0 shows all, Tab goes through the versions.`},
  drawn("defs", {}, ["", "-on"].map((name) => drawn("marker", {id: `arrow${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4,
    markerWidth: 7, markerHeight: 7, orient: "auto"}, drawn("path", {d: "M0 0L8 4L0 8z", class: `arrow${name}`})))), camera);
  const told = (edge) => drawn("title", {}, `${edge.target} is made of ${edge.source}: ${edge.label}`);
  const lines = edges.map((edge) => drawn("path", {d: edge.path, class: "edge"}, told(edge)));
  const labels = edges.map((edge) => drawn("text", {x: edge.x, y: edge.y + 4, class: "label"}, cut(edge.label, 26), told(edge)));
  const boxes = new Map(nodes.map((node) => [node.version, nodeOf(node, versions.get(node.version), page, choose)]));
  camera.append(...lines, ...labels, ...boxes.values());
  const view = moving(svg, camera, width, height);
  return {svg, view, mark: (name) => mark(name, edges, [lines, labels], boxes), show: (name) => view.show(nodes.find((node) => node.version === name))};
}

function nodeOf(node, version, page, choose) {
  const own = (page.findings || []).filter((one) => one.version === node.version && one.severity !== "note");
  const bad = version.problem || own.some((one) => one.severity === "error");
  const state = version.absent ? "plain" : bad ? "bad" : (LOOKS[version.status] || LOOKS.unknown)[0];
  const lines = version.absent ? ["not in this root"] : [
    version.snapshots ? `${rounded(version.records || 0)} records · ${sized(version.bytes || 0)}` : "no snapshot yet",
    `${counted(version.snapshots || 0, "snapshot")} · ${version.published ? `published @${version.published}` : "none published"}`];
  const words = [node.version, ...lines, own.length ? counted(own.length, "finding") : "no findings"].join(", ");
  const pick = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(node.version);
  };
  return drawn("g", {class: `node ${state}${version.absent ? " absent" : ""}`, transform: `translate(${node.x} ${node.y})`, tabindex: 0,
    role: "button", "aria-label": words, "aria-pressed": "false", "data-version": node.version, click: pick, keydown: pick},
  drawn("title", {}, words),
  drawn("rect", {class: "box", width: NODE.width, height: NODE.height, rx: 9}),
  drawn("rect", {class: "state", x: 10, y: 14, width: 4, height: NODE.height - 28, rx: 2}),
  drawn("text", {x: 24, y: 27, class: "name"}, cut(node.version, 21)),
  lines.map((line, at) => drawn("text", {x: 24, y: 47 + 17 * at, class: "small"}, line)),
  own.length > 0 && drawn("g", {class: "badge", transform: `translate(${NODE.width - 6} 6)`},
    drawn("circle", {r: 11}), drawn("text", {y: 4}, own.length > 99 ? "99+" : own.length)));
}

// The lines of all that a version is made of, and of all that is made of it, stand out.
function mark(name, edges, drawings, boxes) {
  const near = new Set();
  for (const [here, there] of [["target", "source"], ["source", "target"]]) {
    const reached = new Set([name]);
    for (const one of reached) {
      edges.forEach((edge, at) => {
        if (edge[here] !== one) return;
        near.add(at);
        reached.add(edge[there]);
      });
    }
  }
  for (const drawing of drawings) drawing.forEach((one, at) => one.classList.toggle("on", near.has(at)));
  for (const [version, box] of boxes) {
    box.classList.toggle("chosen", version === name);
    box.setAttribute("aria-pressed", String(version === name));
  }
}

function moving(svg, camera, width, height) {
  const at = {scale: 1, x: 0, y: 0};
  const draw = () => camera.setAttribute("transform", `translate(${at.x.toFixed(2)} ${at.y.toFixed(2)}) scale(${at.scale.toFixed(4)})`);
  const perUnit = () => svg.getScreenCTM()?.a || 1;
  const inside = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
  const zoom = (factor, x = width / 2, y = height / 2) => {
    const most = Math.max(LARGEST / perUnit(), 1);
    const scale = Math.min(Math.max(at.scale * factor, 0.5), most);
    at.x = x - ((x - at.x) * scale) / at.scale;
    at.y = y - ((y - at.y) * scale) / at.scale;
    at.scale = scale;
    draw();
  };
  const pan = (x, y) => {
    const loose = 0.9 * at.scale;
    at.x = Math.min(Math.max(at.x + x, -width * loose), width * 0.9);
    at.y = Math.min(Math.max(at.y + y, -height * loose), height * 0.9);
    draw();
  };
  const fit = () => {
    Object.assign(at, {scale: 1, x: 0, y: 0});
    draw();
  };
  // A version that is too small to be read is brought near; one that can be seen stays in its place.
  const show = (node) => {
    if (!node) return;
    const seen = at.scale * perUnit();
    if (seen < READABLE) zoom(0.8 / seen);
    const [left, top] = [at.x + node.x * at.scale, at.y + node.y * at.scale];
    const hidden = left < 0 || top < 0 || left + NODE.width * at.scale > width || top + NODE.height * at.scale > height;
    if (!hidden && seen >= READABLE) return;
    pan(width / 2 - left - (NODE.width * at.scale) / 2, height / 2 - top - (NODE.height * at.scale) / 2);
    // No further than the graph goes: beside it there is nothing to see.
    at.x = Math.min(Math.max(at.x, width * (1 - at.scale)), 0);
    at.y = Math.min(Math.max(at.y, height * (1 - at.scale)), 0);
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
  dragging(svg, inside, pan, zoom);
  return {zoom, pan, fit, show};
}

// One finger or the mouse moves; two fingers zoom. A press that moved is not a click.
function dragging(svg, inside, pan, zoom) {
  const pressed = new Map();
  let moved = false;
  const apart = () => {
    const [one, other] = [...pressed.values()];
    return Math.hypot(one.x - other.x, one.y - other.y);
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
    const before = pressed.size === 2 ? apart() : 0;
    const [from, to] = [inside(last.x, last.y), inside(event.clientX, event.clientY)];
    pressed.set(event.pointerId, {x: event.clientX, y: event.clientY});
    if (before) zoom(apart() / before, to.x, to.y);
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
