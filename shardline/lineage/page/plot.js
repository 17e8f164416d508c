// The size of a version over time, as steps from snapshot to snapshot.

const PLOT = {width: 340, height: 150, left: 52, right: 12, top: 12, bottom: 24};
const MOST_DOTS = 48;

// Ticks in steps of 1, 2 or 5 units, from zero to the maximum.
function ticks(most, base) {
  let unit = 1;
  while (most >= unit * base && unit < base ** 5) unit *= base;
  const rough = Math.max(most / unit, 1e-9) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = unit * power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const whole = Math.max(step, 1);
  const values = [];
  for (let value = 0; value < most + whole; value += whole) values.push(value);
  return values;
}

function clock(seconds, span) {
  const text = new Date(seconds * 1000).toISOString();
  if (span < 120) return text.slice(11, 19);
  return span < 2 * 86_400 ? text.slice(5, 16).replace("T", " ") : text.slice(0, 10);
}

function plot(title, sizes, {column, written, short, base}, choose) {
  const {width, height, left, right, top, bottom} = PLOT;
  const times = sizes.map((size) => size[0]);
  const [begin, end] = [times[0], times[times.length - 1]];
  const marks = ticks(Math.max(...sizes.map((size) => size[column])), base);
  const most = marks[marks.length - 1];
  const room = width - right - left - 12;
  // Snapshots of the same second are evenly spaced.
  const share = (index) => (end > begin ? (times[index] - begin) / (end - begin) : times.length > 1 ? index / (times.length - 1) : 0.5);
  const across = (index) => left + 6 + share(index) * room;
  const up = (value) => height - bottom - (value / most) * (height - bottom - top);
  const points = sizes.map((size, index) => [across(index), up(size[column])].map((value) => value.toFixed(1)));
  const line = points.map(([x, y], index) => (index ? `H${x}V${y}` : `M${x} ${y}`)).join("");
  const last = sizes[sizes.length - 1];
  const label = `${title} over time: ${written(sizes[0][column])} index first, ${written(last[column])} index last`;
  const svg = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "plot"});
  for (const mark of marks) {
    svg.append(
      svgElement("line", {x1: left, x2: width - right, y1: up(mark), y2: up(mark), class: mark ? "rule" : "axis"}),
      svgElement("text", {x: left - 6, y: up(mark) + 3.5, class: "tick end"}, short(mark)));
  }
  const labels = end > begin ? [[0, "start"], [times.length - 1, "end"]] : [[0, times.length > 1 ? "start" : "middle"]];
  for (const [index, side] of labels) {
    svg.append(svgElement("text", {x: across(index), y: height - 7, class: `tick ${side}`}, clock(times[index], end - begin)));
  }
  const floor = `V${up(0)}H${points[0][0]}Z`;
  if (points.length > 1) svg.append(svgElement("path", {d: line + floor, class: "area"}), svgElement("path", {d: line, class: "line"}));
  sizes.forEach((size, index) => {
    if (sizes.length > MOST_DOTS && size[4] !== "r" && index !== sizes.length - 1) return;
    const status = {p: "published", r: "rejected", w: "waiting"}[size[4]] || "unknown";
    svg.append(svgElement("circle", {cx: points[index][0], cy: points[index][1], r: 3.6, class: `dot ${LOOKS[status][0]}`,
      click: () => choose(size[3])},
    svgElement("title", {}, `snapshot ${size[3]}, ${status}: ${written(size[column])} index ${moment(new Date(size[0] * 1000).toISOString())}`)));
  });
  return html("figure", {class: "plotted"}, html("figcaption", {}, title, " ", html("b", {}, written(last[column]))), svg);
}
