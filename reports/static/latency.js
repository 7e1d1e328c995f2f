"use strict";
// Charts of the latency page: the change of every case with its interval, and the history of one case.

const latency = (() => {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const percent = (value) => `${value >= 0 ? "+" : ""}${(100 * value).toFixed(1)}%`;
  const axis = (label, values) => ({ label, values, stroke: color("--front"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") }, labelSize: 20, size: 60 });
  const size = (figure) => ({ width: Math.max(260, figure.clientWidth), height: 320 });
  let historyChart = null, redraw = () => {};

  // A chart in a figure, with a text below: the chart's summary, or the description of the point under the pointer.
  function chart(figure, summary, options, values, describe) {
    const text = document.createElement("p");
    text.className = "hint";
    text.textContent = summary;
    const place = document.createElement("div");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", summary);
    figure.append(place, text);
    const plot = new uPlot({ ...size(figure), ...options, legend: { show: false },
      hooks: { setCursor: [({ cursor }) => { text.textContent = cursor.idx === null ? summary : describe(cursor.idx); }] } }, values, place);
    return { plot, remove: () => { plot.destroy(); place.remove(); text.remove(); } };
  }

  function changes(data) {
    const figure = document.getElementById("changes-plot");
    if (!figure || !data.changes.length) return null;
    const list = data.changes;
    const beyond = list.filter(([, , , , verdict]) => ["slower", "faster"].includes(data.verdicts[verdict])).length;
    const describe = (index) => {
      const [name, change, low, high, verdict] = list[index];
      return `${name}: ${percent(change)} (${percent(low)} to ${percent(high)}), ${data.verdicts[verdict]}`;
    };
    const values = [list.map((_, index) => index), list.map(([, , , high]) => high), list.map(([, , low]) => low), list.map(([, change]) => change)];
    return chart(figure, `${list.length} cases, ${beyond} of them slower or faster.`, {
      scales: { x: { time: false } },
      axes: [axis("cases in order of their change", () => []), axis("change", (_, ticks) => ticks.map(percent))],
      series: [{}, { stroke: color("--bar-unavailable"), points: { show: false } }, { stroke: color("--bar-unavailable"), points: { show: false } },
        { stroke: color("--link"), width: 2, points: { show: true, size: 4, fill: color("--link") } }],
      bands: [{ series: [1, 2], fill: color("--unavailable") }],
    }, values, describe);
  }

  function past(series) {
    const figure = document.getElementById("history-plot");
    const nights = series.nights;
    const times = nights.map(([finished]) => Date.parse(`${finished.replace(" ", "T")}Z`) / 1000);
    const describe = (index) => {
      const [finished, revision, torch, ratio, low, high] = nights[index];
      return `${finished}: ${ratio.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)}), revision ${revision}, torch ${torch}`;
    };
    const summary = `${nights.length} nights, ${series.points.length} changes that last${series.points.length ? `: ${series.points.map((index) => nights[index][0]).join(", ")}` : ""}.`;
    return chart(figure, summary, {
      axes: [axis("night"), axis("quantized by float")],
      series: [{}, { stroke: color("--bar-unavailable"), points: { show: false } }, { stroke: color("--bar-unavailable"), points: { show: false } },
        { stroke: color("--link"), width: 2, points: { show: true, size: 5, fill: color("--link") } },
        { stroke: color("--bar-crashes"), paths: () => null, points: { show: true, size: 12, fill: color("--bar-crashes") } }],
      bands: [{ series: [1, 2], fill: color("--unavailable") }],
    }, [times, nights.map((night) => night[5]), nights.map((night) => night[4]), nights.map((night) => night[3]),
      nights.map((night, index) => (series.points.includes(index) ? night[3] : null))], describe);
  }

  function show(data) {
    const select = document.getElementById("case");
    let changesChart = null;
    redraw = () => {
      for (const drawn of [changesChart, historyChart]) drawn?.remove();
      changesChart = changes(data);
      historyChart = select ? past(data.history[Number(select.value)]) : null;
    };
    redraw();
    select?.addEventListener("change", () => { historyChart.remove(); historyChart = past(data.history[Number(select.value)]); });
    document.documentElement.dataset.rendered = "true";
  }

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  return { show };
})();
