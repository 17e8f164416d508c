// The page: its sections, the selected version, and the printed form.

const page = JSON.parse(byId("data").textContent);
const versions = new Map(page.versions.map((version) => [version.name, version]));
const FIRST_FINDINGS = 4;
let chosen = null;

function summary() {
  const {datasets, versions: count, snapshots, published, entries, bytes} = page.counts;
  const severities = (page.severities || []).map(([severity, number]) => formatCount(number, severity));
  byId("time").append("Root ", code(page.root), " at ", timeElement(page.time, moment), " UTC");
  byId("summary").append(
    `${formatCount(count, "version")} of ${formatCount(datasets, "dataset")}, ${formatCount(snapshots, "snapshot")} of which ${formatNumber(published)} are published, ` +
    `${formatCount(entries, "log entry", "log entries")}; the latest snapshots hold ${formatSize(bytes)}. `,
    html("b", {}, page.findings ? severities.join(", ") || "No findings." : "Not audited."));
}

function findings() {
  const listed = page.findings;
  const section = byId("findings");
  if (!listed) {
    section.append(html("p", {class: "notice"}, "Not audited: shows log contents only. To add findings, run ", code("shardline audit --report page.html"), "."));
    return;
  }
  if (!listed.length) {
    section.append(html("p", {class: "notice good"}, "✓ The audit has no findings."));
    return;
  }
  const all = (page.severities || []).reduce((sum, [, count]) => sum + count, 0);
  const list = html("ul", {class: "findings"}, listed.map((finding, index) => html("li", {class: `finding ${LOOKS[finding.severity][0]}${index < FIRST_FINDINGS ? "" : " later"}`},
    chip(finding.severity),
    html("div", {},
      html("p", {class: "where"}, html("b", {}, finding.kind), " ", versions.has(finding.version) ? link(finding.version, finding.version, visit) : finding.version, finding.subject && ` · ${finding.subject}`),
      html("p", {class: "lines"}, finding.detail)),
    html("p", {class: "lines quiet"}, finding.hint))));
  section.append(list);
  if (listed.length > FIRST_FINDINGS) {
    const more = html("button", {type: "button", class: "more", "aria-expanded": "false", click: () => {
      const open = list.classList.toggle("all");
      more.setAttribute("aria-expanded", String(open));
      more.textContent = open ? "Show fewer" : `Show all ${formatNumber(listed.length)}`;
    }}, `Show all ${formatNumber(listed.length)}`);
    section.append(more);
  }
  if (all > listed.length) section.append(html("p", {class: "quiet"}, `Worst ${formatNumber(listed.length)} of ${formatNumber(all)} findings`));
}

function versionTable() {
  const numbers = ["snapshots", "published", "records", "size"];
  const withErrors = new Set((page.findings || []).filter((finding) => finding.severity === "error").map((finding) => finding.version));
  const rows = page.versions.map((version) => html("tr", {"data-version": version.name},
    html("td", {}, link(version.name, version.name, visit)),
    html("td", {}, version.absent ? "not in this root" : version.problem ? chip("error", version.problem) : version.snapshots ? [chip(version.status || "unknown"), withErrors.has(version.name) ? [" ", chip("error", "has findings of severity error")] : ""] : "empty"),
    [formatNumber(version.snapshots || 0), version.published ? `@${version.published}` : "–", formatNumber(version.records || 0), formatSize(version.bytes || 0)].map((text) => html("td", {class: "number"}, version.absent ? "" : text)),
    html("td", {}, version.changed ? timeElement(version.changed) : "")));
  byId("table").append(html("table", {},
    html("thead", {}, html("tr", {}, ["version", "latest", ...numbers, "changed (UTC)"].map((title) => html("th", {scope: "col", class: numbers.includes(title) ? "number" : null}, title)))),
    html("tbody", {}, rows)));
  if (page.versions.length < 9) return;
  byId("filter-label").hidden = false;
  byId("filter").addEventListener("input", (event) => {
    const query = event.target.value.trim().toLowerCase();
    rows.forEach((row) => { row.hidden = !row.dataset.version.toLowerCase().includes(query); });
  });
}

function schemaHistory() {
  const datasets = new Map();
  const known = page.versions.filter((version) => version.created);
  for (const version of known.sort((a, b) => (a.created + a.name < b.created + b.name ? -1 : 1))) {
    const dataset = version.name.split("/")[0];
    datasets.set(dataset, [...(datasets.get(dataset) || []), version]);
  }
  for (const [dataset, list] of [...datasets].sort()) {
    byId("schema-list").append(html("h3", {}, dataset), html("ol", {class: "schemas"}, list.map(schemaRow)));
  }
}

function schemaRow(version) {
  const features = version.features || [];
  const compared = version.compared || [];
  const kept = features.filter((feature) => feature.change === "kept");
  const changed = compared.length ? features.filter((feature) => feature.change !== "kept") : [];
  return html("li", {},
    html("div", {class: "when"}, timeElement(version.created, day), " ", link(version.name, version.name, visit), " ",
      html("span", {class: "quiet"}, compared.length
        ? ["compared with ", separate(compared.map((name) => link(name, name, visit))), kept.length ? `: ${formatCount(kept.length, "feature")} kept` : ""]
        : `declared with ${formatCount(features.length, "feature")}`)),
    compared.length ? null : html("p", {class: "features-line"}, separate(features.slice(0, 40).map((feature) => html("span", {title: feature.spec}, html("b", {}, feature.name), ` ${feature.spec.split(" ")[0]}`)))),
    changed.length > 0 && html("ul", {class: "changes"}, changed.slice(0, 60).map((feature) => html("li", {},
      html("span", {class: `sign ${TONES[feature.change] || "warn"}`, "aria-hidden": "true"}, SIGNS[feature.change]), " ",
      html("span", {class: "quiet"}, feature.change), " ", html("b", {}, feature.name), ` ${feature.spec} `,
      feature.previous && html("span", {class: "quiet"}, `was ${feature.previous} `),
      html("span", {class: "quiet"}, originText(feature, visit))))));
}

function tools(view) {
  const button = (label, sign, action) => html("button", {type: "button", "aria-label": label, title: label, click: action}, sign);
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
  const hash = `#${encodeURIComponent(name)}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

// A version selected in the graph is visible already. A link scrolls to its version.
function visit(name) {
  choose(name);
  graph.show(name);
  byId("detail").scrollIntoView({block: "nearest"});
  byId("detail").focus({preventScroll: true});
}

// Print every version in full, since paper has no links.
function printAll() {
  const container = byId("printed");
  if (!container.childElementCount) container.append(...page.versions.map((version) => html("section", {class: "card"}, versionArticle(version, page, visit, true))));
}

function hashVersion() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function firstChoice() {
  const worst = (page.findings || []).find((finding) => versions.has(finding.version));
  const newest = [...page.versions].sort((a, b) => (a.changed || "") < (b.changed || "") ? 1 : -1)[0];
  return versions.has(hashVersion()) ? hashVersion() : worst ? worst.version : newest && newest.name;
}

const graph = drawGraph(page, choose);
summary();
findings();
byId("graph").append(graph.svg);
tools(graph.view);
versionTable();
schemaHistory();
byId("foot").append(
  `Written by shardline ${page.release} from the logs of the root. Times are in UTC, sizes in powers of 1024. ` +
  `${formatNumber(page.counts.listed)} of ${formatCount(page.counts.snapshots, "snapshot")} are listed in full. The file is self-contained.`);
if (page.versions.length) {
  choose(firstChoice());
  graph.show(chosen);
} else byId("detail").append(html("p", {class: "notice"}, "This root has no versions."));
addEventListener("hashchange", () => { if (hashVersion() !== chosen) choose(hashVersion()); });
addEventListener("beforeprint", printAll);
matchMedia("print").addEventListener("change", (event) => { if (event.matches) printAll(); });
