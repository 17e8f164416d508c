// How much a version held over time: steps, since a snapshot stands until the next one.

const PLOT = {width: 340, height: 150, left: 52, right: 12, top: 12, bottom: 24};
const MOST_DOTS = 48;

// Steps of 1, 2 or 5 in units of their own, from zero up to what is needed.
function ticks(most, base) {
  let unit = 1;
  while (most >= unit * base && unit < base ** 5) unit *= base;
  const rough = Math.max(most / unit, 1e-9) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = unit * power * [1, 2, 5, 10].find((one) => one * power >= rough);
  const whole = Math.max(step, 1);
  const found = [];
  for (let value = 0; value < most + whole; value += whole) found.push(value);
  return found;
}

function clock(seconds, span) {
  const told = new Date(seconds * 1000).toISOString();
  if (span < 120) return told.slice(11, 19);
  return span < 2 * 86_400 ? told.slice(5, 16).replace("T", " ") : told.slice(0, 10);
}

function plot(title, sizes, {column, written, short, base}, choose) {
  const {width, height, left, right, top, bottom} = PLOT;
  const times = sizes.map((one) => one[0]);
  const [begin, end] = [times[0], times[times.length - 1]];
  const marks = ticks(Math.max(...sizes.map((one) => one[column])), base);
  const most = marks[marks.length - 1];
  const room = width - right - left - 12;
  // What was made within a second stands side by side.
  const share = (at) => (end > begin ? (times[at] - begin) / (end - begin) : times.length > 1 ? at / (times.length - 1) : 0.5);
  const across = (at) => left + 6 + share(at) * room;
  const up = (value) => height - bottom - (value / most) * (height - bottom - top);
  const points = sizes.map((one, at) => [across(at), up(one[column])].map((at) => at.toFixed(1)));
  const line = points.map(([x, y], at) => (at ? `H${x}V${y}` : `M${x} ${y}`)).join("");
  const last = sizes[sizes.length - 1];
  const words = `${title} over time: ${written(sizes[0][column])} at first, ${written(last[column])} at last`;
  const svg = drawn("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, class: "plot"});
  for (const mark of marks) {
    svg.append(
      drawn("line", {x1: left, x2: width - right, y1: up(mark), y2: up(mark), class: mark ? "rule" : "axis"}),
      drawn("text", {x: left - 6, y: up(mark) + 3.5, class: "tick end"}, short(mark)));
  }
  const labels = end > begin ? [[0, "start"], [times.length - 1, "end"]] : [[0, times.length > 1 ? "start" : "middle"]];
  for (const [at, side] of labels) {
    svg.append(drawn("text", {x: across(at), y: height - 7, class: `tick ${side}`}, clock(times[at], end - begin)));
  }
  const floor = `V${up(0)}H${points[0][0]}Z`;
  if (points.length > 1) svg.append(drawn("path", {d: line + floor, class: "area"}), drawn("path", {d: line, class: "line"}));
  sizes.forEach((one, at) => {
    if (sizes.length > MOST_DOTS && one[4] !== "r" && at !== sizes.length - 1) return;
    const verdict = {p: "published", r: "rejected", w: "waiting"}[one[4]] || "unknown";
    svg.append(drawn("circle", {cx: points[at][0], cy: points[at][1], r: 3.6, class: `dot ${LOOKS[verdict][0]}`,
      click: () => choose(one[3])},
    drawn("title", {}, `snapshot ${one[3]}, ${verdict}: ${written(one[column])} at ${moment(new Date(one[0] * 1000).toISOString())}`)));
  });
  return made("figure", {class: "plotted"}, made("figcaption", {}, title, " ", made("b", {}, written(last[column]))), svg);
}
