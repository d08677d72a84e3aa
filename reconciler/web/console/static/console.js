/* What pages do where JavaScript runs: live parts that say when they stand still, and charts. By hand, no build. */
"use strict";

document.documentElement.classList.add("scripted");

/* ---- on a telephone the pages stand in one line: the one that is open is in sight */
const strip = document.querySelector("nav ul");
const open = strip?.querySelector("[aria-current]");
if (open) strip.scrollLeft = open.offsetLeft - (strip.clientWidth - open.offsetWidth) / 2;

/* ---- live parts: htmx asks, this tells */
const stale = document.getElementById("stale");
const told = document.getElementById("told");
const runs = document.querySelector(".live p.scripted");

function sentence() {
  const found = document.getElementById("sentence");
  return found ? found.textContent : "";
}
let lastSentence = sentence();
const zone = document.documentElement.dataset.zone || "UTC";
// As the server writes times: year, month, day, then the clock.
const stamp = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });

function asked(failed) {
  if (stale) stale.hidden = !failed;
}
for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, () => asked(true));
}
document.addEventListener("htmx:afterSwap", (event) => {
  asked(false);
  // What has come to its end is not asked for again.
  if (runs && !document.querySelector("[hx-get]")) runs.remove();
  // Who listens hears the sentence when it changes, and not every ten seconds.
  if (told && sentence() !== lastSentence) told.textContent = lastSentence = sentence();
  // By the server's clock, so that a page that stands still says since when.
  const at = new Date(event.detail.xhr?.getResponseHeader("Date") || NaN);
  for (const time of isNaN(at) ? [] : document.querySelectorAll("#stale time, footer time")) {
    time.dateTime = at.toISOString();
    time.textContent = stamp.format(at);
  }
});

/* ---- reasons that were typed: a session that ends before the button is pressed costs none of them */
const typed = "reason of ";
const sent = "reasons sent";
if (/\/(acts|jobs)\//.test(location.pathname)) {
  // It was done: what was sent is on record.
  for (const name of JSON.parse(sessionStorage.getItem(sent) || "[]")) sessionStorage.removeItem(name);
}
sessionStorage.removeItem(sent);
for (const box of document.querySelectorAll("form.act input[name=reason]")) {
  const name = typed + location.pathname + "#" + box.id;
  box.value = box.value || sessionStorage.getItem(name) || "";
  box.addEventListener("input", () => sessionStorage.setItem(name, box.value));
  box.form.addEventListener("submit", () => sessionStorage.setItem(sent, JSON.stringify([name])));
}

/* ---- choosing rows: the boxes work alone; this counts them, and marks all of the page */
const bulk = document.getElementById("bulk");
if (bulk) {
  const boxes = [...bulk.elements].filter((one) => one.name === "keys");
  const all = document.getElementById("choose-all");
  const kinds = [...document.querySelectorAll("[data-choose]")];
  const of = (one) => boxes.filter((box) => box.dataset.verdict === one.dataset.choose);
  const count = () => {
    const marked = boxes.filter((box) => box.checked);
    // A message that is lost for two groups has two rows.
    const number = new Set(marked.map((box) => box.value)).size;
    document.getElementById("chosen").textContent = number;
    for (const button of bulk.querySelectorAll("button")) button.disabled = number === 0;
    bulk.parentElement.classList.toggle("chosen", number > 0);
    all.checked = marked.length === boxes.length;
    all.indeterminate = marked.length > 0 && !all.checked;
    for (const one of kinds) one.checked = of(one).every((box) => box.checked);
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    count();
  });
  for (const one of kinds) {
    one.addEventListener("change", () => {
      for (const box of of(one)) box.checked = one.checked;
      count();
    });
  }
  for (const box of boxes) box.addEventListener("change", count);
  // Also after "back": browsers remember what was chosen.
  addEventListener("pageshow", count);
}

/* ---- charts */
const language = document.documentElement.lang;
const hour = new Intl.DateTimeFormat(language, { timeZone: zone, hour: "2-digit", minute: "2-digit", hour12: false });
const whole = new Intl.DateTimeFormat(language, { timeZone: zone, dateStyle: "short", timeStyle: "short", hour12: false });

// There is no half of a message.
const counts = Array.from({ length: 30 }, (_, n) => [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3));

function draw(figure, data) {
  const place = figure.querySelector("[role=img]");
  const style = getComputedStyle(figure);
  const unit = figure.dataset.unit;
  const named = [...figure.querySelectorAll("[data-series]")];
  const series = named.map((one) => ({
    label: one.textContent,
    stroke: getComputedStyle(one).color,
    width: 2,
    dash: one.classList.contains("series-2") ? [6, 4] : undefined,
    // Proofs are rare: a line needs two neighbours, a point needs none.
    points: { show: unit ? true : false, size: 6 },
    value: (_, value) => (value == null ? "" : `${value.toLocaleString(language)}${unit ? " " + unit : ""}`),
  }));
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const axis = { stroke: style.color, font: `${0.75 * rem}px ${style.fontFamily}`, grid: { stroke: style.borderColor, width: 1 }, ticks: { stroke: style.borderColor, width: 1 } };
  place.replaceChildren();
  return new uPlot(
    {
      width: Math.max(240, place.clientWidth),
      height: 12 * rem,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [
        { ...axis, values: (_, at) => at.map((seconds) => hour.format(seconds * 1000)) },
        { ...axis, size: 3.5 * rem, ...(unit ? {} : { incrs: counts }), values: (_, at) => at.map((value) => value.toLocaleString(language)) },
      ],
      series: [{ value: (_, at) => (at == null ? "" : whole.format(at * 1000)), label: figure.dataset.at }, ...series],
    },
    [data.at_seconds, ...named.map((one) => data[one.dataset.series])],
    place,
  );
}

for (const box of document.querySelectorAll("[data-charts]")) {
  const figures = [...box.querySelectorAll("figure")];
  let plots = [];
  let newest = null;

  const again = () => {
    if (!newest) return;
    plots.forEach((plot) => plot.destroy());
    figures.forEach((figure) => { figure.hidden = false; });
    plots = figures.map((figure) => draw(figure, newest));
  };
  const ask = async () => {
    try {
      const answer = await fetch(box.dataset.charts, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      newest = await answer.json();
      again();
    } catch (error) {
      asked(true);
    }
  };

  ask();
  if (box.dataset.everySeconds) setInterval(() => document.hidden || ask(), 1000 * box.dataset.everySeconds);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      again();
    }
  }).observe(box);
}
