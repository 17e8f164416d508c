// The whole page: what is on it, which version is chosen, and what is printed.

const page = JSON.parse(byId("data").textContent);
const versions = new Map(page.versions.map((one) => [one.name, one]));
const FIRST_FINDINGS = 4;
let chosen = null;

function summary() {
  const {datasets, versions: many, snapshots, published, entries, bytes} = page.counts;
  const severities = (page.severities || []).map(([word, count]) => counted(count, word));
  byId("made").append("Root ", code(page.root), " as it stood on ", timed(page.time, moment), " UTC");
  byId("summary").append(
    `${counted(many, "version")} of ${counted(datasets, "dataset")}, ${counted(snapshots, "snapshot")} of which ${grouped(published)} are published, ` +
    `${counted(entries, "log entry", "log entries")}; the newest snapshots hold ${sized(bytes)}. `,
    made("b", {}, page.findings ? severities.join(", ") || "No findings." : "Not audited."));
}

function findings() {
  const found = page.findings;
  const section = byId("findings");
  if (!found) {
    section.append(made("p", {class: "notice"}, "No audit was run for this page: it tells what the logs say, and proves nothing. ", code("shardline audit --report page.html"), " makes it with findings."));
    return;
  }
  if (!found.length) {
    section.append(made("p", {class: "notice good"}, "✓ The audit found nothing that is not as it should be."));
    return;
  }
  const all = (page.severities || []).reduce((sum, [, count]) => sum + count, 0);
    const list = made("ul", {class: "findings"}, found.map((one, at) => made("li", {class: `finding ${LOOKS[one.severity][0]}${at < FIRST_FINDINGS ? "" : " later"}`},
    chip(one.severity),
    made("div", {},
      made("p", {class: "where"}, made("b", {}, one.kind), " ", versions.has(one.version) ? link(one.version, one.version, visit) : one.version, one.subject && ` · ${one.subject}`),
      made("p", {class: "lines"}, one.detail)),
    made("p", {class: "lines quiet"}, one.hint))));
  section.append(list);
  if (found.length > FIRST_FINDINGS) {
    const more = made("button", {type: "button", class: "more", "aria-expanded": "false", click: () => {
      const open = list.classList.toggle("all");
      more.setAttribute("aria-expanded", String(open));
      more.textContent = open ? "Show fewer" : `Show all ${grouped(found.length)}`;
    }}, `Show all ${grouped(found.length)}`);
    section.append(more);
  }
  if (all > found.length) section.append(made("p", {class: "quiet"}, `The worst ${grouped(found.length)} of ${grouped(all)} are listed here, to keep this file small.`));
}

function versionTable() {
  const numbers = ["snapshots", "published", "records", "size"];
  const wrong = new Set((page.findings || []).filter((one) => one.severity === "error").map((one) => one.version));
  const rows = page.versions.map((one) => made("tr", {"data-version": one.name},
    made("td", {}, link(one.name, one.name, visit)),
    made("td", {}, one.absent ? "not in this root" : one.problem ? chip("error", one.problem) : one.snapshots ? [chip(one.status || "unknown"), wrong.has(one.name) ? [" ", chip("error", "there is one among the findings")] : ""] : "empty"),
    [grouped(one.snapshots || 0), one.published ? `@${one.published}` : "–", grouped(one.records || 0), sized(one.bytes || 0)].map((text) => made("td", {class: "number"}, one.absent ? "" : text)),
    made("td", {}, one.changed ? timed(one.changed) : "")));
  byId("table").append(made("table", {},
    made("thead", {}, made("tr", {}, ["version", "newest", ...numbers, "changed (UTC)"].map((word) => made("th", {scope: "col", class: numbers.includes(word) ? "number" : null}, word)))),
    made("tbody", {}, rows)));
  if (page.versions.length < 9) return;
  byId("filter-label").hidden = false;
  byId("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    rows.forEach((row) => { row.hidden = !row.dataset.version.toLowerCase().includes(wanted); });
  });
}

function schemaHistory() {
  const datasets = new Map();
  const known = page.versions.filter((one) => one.created);
  for (const one of known.sort((a, b) => (a.created + a.name < b.created + b.name ? -1 : 1))) {
    const dataset = one.name.split("/")[0];
    datasets.set(dataset, [...(datasets.get(dataset) || []), one]);
  }
  for (const [dataset, list] of [...datasets].sort()) {
    byId("schema-list").append(made("h3", {}, dataset), made("ol", {class: "schemas"}, list.map(schemaRow)));
  }
}

function schemaRow(version) {
  const fields = version.features || [];
  const compared = version.compared || [];
  const kept = fields.filter((one) => one.change === "kept");
  const differ = compared.length ? fields.filter((one) => one.change !== "kept") : [];
  return made("li", {},
    made("div", {class: "when"}, timed(version.created, day), " ", link(version.name, version.name, visit), " ",
      made("span", {class: "quiet"}, compared.length
        ? ["beside ", separated(compared.map((name) => link(name, name, visit))), kept.length ? `: the same ${counted(kept.length, "field")}${differ.length ? ", and" : ""}` : ""]
        : `declared with ${counted(fields.length, "field")}`)),
    compared.length ? null : made("p", {class: "fields-line"}, separated(fields.slice(0, 40).map((one) => made("span", {title: one.spec}, made("b", {}, one.name), ` ${one.spec.split(" ")[0]}`)))),
    differ.length > 0 && made("ul", {class: "changes"}, differ.slice(0, 60).map((one) => made("li", {},
      made("span", {class: `sign ${TONES[one.change] || "warn"}`, "aria-hidden": "true"}, SIGNS[one.change]), " ",
      made("span", {class: "quiet"}, one.change), " ", made("b", {}, one.name), ` ${one.spec} `,
      one.previous && made("span", {class: "quiet"}, `was ${one.previous} `),
      made("span", {class: "quiet"}, originWords(one, visit))))));
}

function tools(view) {
  const button = (words, sign, act) => made("button", {type: "button", "aria-label": words, title: words, click: act}, sign);
  byId("tools").append(
    button("Zoom in", "+", () => view.zoom(1.25)), button("Zoom out", "−", () => view.zoom(0.8)), button("Show all", "Fit", view.fit));
}

function choose(name) {
  if (!versions.has(name)) return;
  chosen = name;
  const panel = byId("detail");
  panel.replaceChildren(versionArticle(versions.get(name), page, visit));
  panel.scrollTop = 0;
  graph.mark(name);
  for (const row of byId("table").querySelectorAll("tr[data-version]")) row.classList.toggle("chosen", row.dataset.version === name);
  const where = `#${encodeURIComponent(name)}`;
  if (location.hash !== where) history.replaceState(null, "", where);
}

// What is chosen in the graph is under the eyes already; what a link leads to is brought there.
function visit(name) {
  choose(name);
  graph.show(name);
  byId("detail").scrollIntoView({block: "nearest"});
  byId("detail").focus({preventScroll: true});
}

// On paper nothing can be clicked: every version is told in full.
function printAll() {
  const place = byId("printed");
  if (!place.childElementCount) place.append(...page.versions.map((one) => made("section", {class: "card"}, versionArticle(one, page, visit, true))));
}

function hinted() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function firstChoice() {
  const worst = (page.findings || []).find((one) => versions.has(one.version));
  const newest = [...page.versions].sort((a, b) => (a.changed || "") < (b.changed || "") ? 1 : -1)[0];
  return versions.has(hinted()) ? hinted() : worst ? worst.version : newest && newest.name;
}

const graph = graphOf(page, choose);
summary();
findings();
byId("graph").append(graph.svg);
tools(graph.view);
versionTable();
schemaHistory();
byId("foot").append(
  `Made by shardline ${page.release} from the logs of the root alone. All times are in UTC; sizes are in powers of 1024. ` +
  `${grouped(page.counts.listed)} of ${counted(page.counts.snapshots, "snapshot")} are told in full. This file is all of it: nothing is fetched.`);
if (page.versions.length) {
  choose(firstChoice());
  graph.show(chosen);
} else byId("detail").append(made("p", {class: "notice"}, "There is no version in this root yet."));
addEventListener("hashchange", () => { if (hinted() !== chosen) choose(hinted()); });
addEventListener("beforeprint", printAll);
matchMedia("print").addEventListener("change", (event) => { if (event.matches) printAll(); });
