"use strict";
// Charts of the page about latency: every change with its interval, and the history of one case.

const latency = (() => {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const percent = (value) => `${value >= 0 ? "+" : ""}${(100 * value).toFixed(1)}%`;
  const axis = (label, values) => ({ label, values, stroke: color("--front"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") }, labelSize: 20, size: 60 });
  const size = (figure) => ({ width: Math.max(260, figure.clientWidth), height: 320 });
  let shown = null, again = () => {};

  // A chart in its figure, with what it says as text beside it: where the pointer is, one point's own.
  function chart(figure, said, options, values, tell) {
    const text = document.createElement("p");
    text.className = "hint";
    text.textContent = said;
    const place = document.createElement("div");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", said);
    figure.append(place, text);
    const plot = new uPlot({ ...size(figure), ...options, legend: { show: false },
      hooks: { setCursor: [(one) => { text.textContent = one.cursor.idx === null ? said : tell(one.cursor.idx); }] } }, values, place);
    return { plot, remove: () => { plot.destroy(); place.remove(); text.remove(); } };
  }

  function changes(data) {
    const figure = document.getElementById("changes-plot");
    if (!figure || !data.changes.length) return null;
    const list = data.changes;
    const beyond = list.filter(([, , , , verdict]) => ["slower", "faster"].includes(data.verdicts[verdict])).length;
    const tell = (at) => `${list[at][0]}: ${percent(list[at][1])} (${percent(list[at][2])} to ${percent(list[at][3])}), ${data.verdicts[list[at][4]]}`;
    const values = [list.map((_, at) => at), list.map((one) => one[3]), list.map((one) => one[2]), list.map((one) => one[1])];
    return chart(figure, `${list.length} cases, ${beyond} of them slower or faster.`, {
      scales: { x: { time: false } },
      axes: [axis("cases in order of their change", () => []), axis("change", (_, ticks) => ticks.map(percent))],
      series: [{}, { stroke: color("--bar-unavailable"), points: { show: false } }, { stroke: color("--bar-unavailable"), points: { show: false } },
        { stroke: color("--link"), width: 2, points: { show: true, size: 4, fill: color("--link") } }],
      bands: [{ series: [1, 2], fill: color("--unavailable") }],
    }, values, tell);
  }

  function past(series) {
    const figure = document.getElementById("history-plot");
    const nights = series.nights;
    const at = nights.map(([finished]) => Date.parse(`${finished.replace(" ", "T")}Z`) / 1000);
    const tell = (index) => {
      const [finished, revision, torch, ratio, low, high] = nights[index];
      return `${finished}: ${ratio.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)}), revision ${revision}, torch ${torch}`;
    };
    const said = `${nights.length} nights, ${series.points.length} changes that last${series.points.length ? `: ${series.points.map((index) => nights[index][0]).join(", ")}` : ""}.`;
    return chart(figure, said, {
      axes: [axis("night"), axis("quantized by float")],
      series: [{}, { stroke: color("--bar-unavailable"), points: { show: false } }, { stroke: color("--bar-unavailable"), points: { show: false } },
        { stroke: color("--link"), width: 2, points: { show: true, size: 5, fill: color("--link") } },
        { stroke: color("--bar-crashes"), paths: () => null, points: { show: true, size: 12, fill: color("--bar-crashes") } }],
      bands: [{ series: [1, 2], fill: color("--unavailable") }],
    }, [at, nights.map((one) => one[5]), nights.map((one) => one[4]), nights.map((one) => one[3]),
      nights.map((one, index) => (series.points.includes(index) ? one[3] : null))], tell);
  }

  function show(data) {
    const select = document.getElementById("case");
    let first = null;
    again = () => {
      for (const one of [first, shown]) one?.remove();
      first = changes(data);
      shown = select ? past(data.history[Number(select.value)]) : null;
    };
    again();
    select?.addEventListener("change", () => { shown.remove(); shown = past(data.history[Number(select.value)]); });
    document.documentElement.dataset.rendered = "true";
  }

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => again());
  return { show };
})();
