"use strict";
// The conformance map, its filters, and the details of a run. Text is inserted as text nodes, never as markup.

const NEW = 1, DIFFERS = 2, DIAGNOSED = 4;
const FIRST_ROWS = 40;
const WORST_FIRST = ["crashes", "undefined", "deviates", "unjudged", "conforms", "unavailable"];

const conformance = (() => {
  const form = document.getElementById("filters");
  const table = document.getElementById("map");
  const dialog = document.getElementById("run");
  const title = document.getElementById("run-title");
  const body = document.getElementById("run-body");
  const chunks = new Map();
  const waiting = new Map();
  let data, runs, count, matching, pivot, words, pending = 0, plots = [], opener = null;

  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in node && name !== "role") node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const id = (run) =>
    `${data.columns[runs.column[run]].backend}/${data.patterns[runs.pattern[run]].name}/${data.dtypes[runs.dtype[run]]}/` +
    `${data.flows[runs.flow[run]]}/${data.variants[runs.variant[run]]}/${data.profiles[runs.profile[run]]}@` +
    data.columns[runs.column[run]].engine;
  const columnName = (number) => {
    const column = data.columns[number];
    return `${column.backend} on ${column.engine}, ${column.platform}`;
  };
  const verdictOf = (run) => data.verdicts[runs.verdict[run]];
  const failures = (run) => data.failures.filter((_, bit) => runs.failed[run] & (1 << bit));

  // Filters

  function read() {
    const values = Object.fromEntries(new FormData(form));
    return {
      words: values.q.toLowerCase().split(/\s+/).filter(Boolean),
      family: values.family === "" ? -1 : Number(values.family),
      dtype: values.dtype === "" ? -1 : Number(values.dtype),
      check: values.check === "" ? 0 : 1 << data.failures.indexOf(values.check),
      verdict: values.verdict === "" ? -1 : data.verdicts.indexOf(values.verdict),
      flags: (values.differences ? DIFFERS : 0) | (values.new ? NEW : 0),
    };
  }

  function searched() {
    if (!words) {
      words = new Array(count);
      for (let run = 0; run < count; run++) {
        const entry = runs.known[run];
        words[run] = (entry < 0 ? id(run) : `${id(run)} ${data.entries[entry].id} ${data.entries[entry].reason}`).toLowerCase();
      }
    }
    return words;
  }

  function filter() {
    const wanted = read();
    const texts = wanted.words.length ? searched() : null;
    let total = 0;
    for (let run = 0; run < count; run++) {
      const matches =
        (wanted.dtype < 0 || runs.dtype[run] === wanted.dtype) &&
        (wanted.family < 0 || data.patterns[runs.pattern[run]].family === wanted.family) &&
        (wanted.check === 0 || (runs.failed[run] & wanted.check) !== 0) &&
        (wanted.verdict < 0 || runs.verdict[run] === wanted.verdict) &&
        (runs.flags[run] & wanted.flags) === wanted.flags &&
        (texts === null || wanted.words.every((word) => texts[run].includes(word)));
      matching[run] = matches ? 1 : 0;
      total += matching[run];
    }
    return total;
  }

  function tally() {
    // for every pattern and column, the numbers of runs, failing runs and new runs, and the verdicts as bits, the worst the lowest
    const width = data.columns.length;
    const ranks = data.verdicts.map((name) => WORST_FIRST.indexOf(name)), conforms = WORST_FIRST.indexOf("conforms");
    const { pattern, column, verdict, flags } = runs;
    pivot.fill(0);
    for (let run = 0; run < count; run++) {
      if (!matching[run]) continue;
      const start = 4 * (pattern[run] * width + column[run]), rank = ranks[verdict[run]];
      pivot[start]++;
      if (rank < conforms) pivot[start + 1]++;
      if (flags[run] & NEW) pivot[start + 2]++;
      pivot[start + 3] |= 1 << rank;
    }
  }

  // Map

  function cell(pattern, column) {
    const start = 4 * (pattern * data.columns.length + column);
    const [total, failing, fresh, verdicts] = pivot.subarray(start, start + 4);
    const field = make("td", { role: "gridcell" });
    if (!total) return field;
    const verdict = WORST_FIRST.find((name, rank) => verdicts & (1 << rank));
    const counts = failing ? `${failing}/${total}` : `${total}`;
    const description = { crashes: `${failing} of ${total} runs deviate or crash`,
      undefined: `${failing} of ${total} runs deviate or have an undefined outcome`, deviates: `${failing} of ${total} runs deviate`,
      unjudged: `${total} runs, at least one of which lacks its golden`, conforms: `${total} runs conform`,
      unavailable: `${total} runs were not executed` }[verdict];
    const button = make("button", { type: "button", className: `cell ${fresh ? "new" : verdict}`, tabIndex: -1,
      textContent: `${data.symbols[verdict]} ${counts}${fresh ? " new" : ""}` });
    button.setAttribute("aria-label", `${data.patterns[pattern].name}, ${columnName(column)}: ${description}${fresh ? `, ${fresh} that the ledger does not expect` : ""}`);
    button.dataset.pattern = pattern;
    button.dataset.column = column;
    field.append(button);
    return field;
  }

  function line(pattern, columns) {
    const row = make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, make("code", { textContent: data.patterns[pattern].name })));
    for (const column of columns) row.append(cell(pattern, column));
    return row;
  }

  function render() {
    clearTimeout(pending);
    const total = filter();
    tally();
    const width = data.columns.length;
    const has = (pattern, column) => pivot[4 * (pattern * width + column)] > 0;
    const all = [...data.columns.keys()];
    const patterns = data.order.filter((pattern) => all.some((column) => has(pattern, column)));
    const columns = total ? all.filter((column) => patterns.some((pattern) => has(pattern, column))) : all;
    head(columns);
    const rows = table.tBodies[0];
    rows.replaceChildren(...patterns.slice(0, FIRST_ROWS).map((pattern) => line(pattern, columns)));
    const first = rows.querySelector("button");
    if (first) first.tabIndex = 0;
    let next = FIRST_ROWS;
    const more = () => {
      if (next >= patterns.length) return;
      rows.append(...patterns.slice(next, next + FIRST_ROWS).map((pattern) => line(pattern, columns)));
      next += FIRST_ROWS;
      pending = setTimeout(more);
    };
    pending = setTimeout(more);
    document.getElementById("matching").textContent =
      `${total.toLocaleString("en")} of ${count.toLocaleString("en")} runs, ${patterns.length} patterns` +
      (total ? "" : ": nothing matches, clear a filter");
    document.documentElement.dataset.rendered = Number(document.documentElement.dataset.rendered || 0) + 1;
  }

  function head(columns) {
    const row = make("tr", { role: "row" }, make("th", { scope: "col", role: "columnheader", textContent: "pattern" }));
    for (const number of columns) {
      const { backend, engine, platform } = data.columns[number];
      const name = backend === engine ? engine : `${engine} (${backend})`;
      row.append(make("th", { scope: "col", role: "columnheader" }, make("b", { textContent: name }), platform));
    }
    table.tHead.replaceChildren(row);
  }

  const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

  function move(event) {
    const button = event.target.closest("button.cell");
    if (!button || !(event.key in MOVES)) return;
    const [down, right] = MOVES[event.key];
    let field = button.parentElement, next = null;
    const position = field.cellIndex;
    while (field && !next) {
      if (right) field = right > 0 ? field.nextElementSibling : field.previousElementSibling;
      else {
        const row = down > 0 ? field.parentElement.nextElementSibling : field.parentElement.previousElementSibling;
        field = row && row.cells[position];
      }
      next = field && field.querySelector("button.cell");
    }
    event.preventDefault();
    if (!next) return;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // Details of a run

  function load(pattern, then) {
    if (chunks.has(pattern)) return then(chunks.get(pattern));
    if (waiting.has(pattern)) return waiting.get(pattern).push(then);
    waiting.set(pattern, [then]);
    const script = make("script", { src: `data/${pattern}.js` });
    script.addEventListener("error", () => {
      waiting.delete(pattern);
      body.replaceChildren(make("p", { textContent: `data/${pattern}.js is missing: render the report again.` }));
    });
    document.head.append(script);
  }

  async function chunk(pattern, packed) {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const list = JSON.parse(await new Response(stream).text());
    chunks.set(pattern, new Map(list.map((details) => [details.number, details])));
    for (const then of waiting.get(pattern) || []) then(chunks.get(pattern));
    waiting.delete(pattern);
  }

  function show(name, ...children) {
    for (const plot of plots) plot.destroy();
    plots = [];
    title.textContent = name;
    body.replaceChildren(...children);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    title.focus();
  }

  const badge = (run) =>
    make("span", { className: `tag ${runs.flags[run] & NEW ? "new" : verdictOf(run)}`,
      textContent: `${data.symbols[verdictOf(run)]} ${verdictOf(run)}${runs.flags[run] & NEW ? ", new" : ""}` });

  function openCell(pattern, column) {
    const list = [];
    for (let run = 0; run < count; run++) {
      if (matching[run] && runs.pattern[run] === pattern && runs.column[run] === column) list.push(run);
    }
    if (list.length === 1) return openRun(list[0]);
    list.sort((a, b) => WORST_FIRST.indexOf(verdictOf(a)) - WORST_FIRST.indexOf(verdictOf(b)) || a - b);
    const items = list.map((run) => {
      const button = make("button", { type: "button" }, badge(run),
        make("span", {}, make("code", { textContent: id(run).slice(id(run).indexOf(data.patterns[pattern].name) + data.patterns[pattern].name.length + 1) }),
          failures(run).length ? ` ${failures(run).join(", ")}` : ""));
      button.addEventListener("click", () => openRun(run, () => openCell(pattern, column)));
      return make("li", {}, button);
    });
    show(data.patterns[pattern].name, make("p", { textContent: `${columnName(column)}: ${list.length} runs that match the filters` }),
      make("ul", { className: "runs" }, ...items));
  }

  function openRun(run, back = null) {
    show(id(run), make("p", { textContent: "Loading …" }));
    load(runs.pattern[run], (chunk) => show(id(run), ...parts(run, chunk.get(run), back)));
    const hash = new URLSearchParams({ run: id(run), on: data.columns[runs.column[run]].platform });
    history.replaceState(null, "", `#${hash}`);
  }

  function copyable(text, label) {
    const status = make("span", { role: "status" });
    const button = make("button", { type: "button", className: "copy", textContent: label });
    const block = make("pre", { tabIndex: 0 }, make("code", { textContent: text }));
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        status.textContent = "Copied.";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(block);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        status.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy it with the keyboard.";
      }
    });
    return [make("div", { className: "buttons" }, button, status), block];
  }

  function* parts(run, details, back) {
    const paragraph = (entry) =>
      make("p", {}, make("strong", { textContent: entry.title }), ` ${entry.reason} `, make("code", { textContent: entry.id }), " · ",
        entry.link ? make("a", { href: entry.link, rel: "noreferrer", textContent: entry.upstream }) : "unreported upstream");
    if (back) {
      const button = make("button", { type: "button", textContent: "← All runs of the cell" });
      button.addEventListener("click", back);
      yield make("p", {}, button);
    }
    yield make("p", {}, badge(run), ` ${columnName(runs.column[run])}`);
    if (details.message) yield make("p", {}, make("span", { className: "tag new", textContent: "new" }), ` ${details.message}`);
    for (const entry of details.entries) yield paragraph(entry);
    if (details.detail) yield make("blockquote", { textContent: details.detail });
    if (Object.keys(details.checks).length) {
      yield make("h3", { textContent: "Checks" });
      const look = { pass: "conforms", fail: "deviates", skip: "unavailable" };
      const sign = { pass: "✓", fail: "✗", skip: "–" };
      yield make("ul", { className: "outcomes" }, ...Object.entries(details.checks).map(([name, result]) =>
        make("li", { className: look[result], textContent: `${sign[result]} ${name}: ${result}` })));
    }
    const figures = Object.entries(details.numbers).filter(([, value]) => value !== null);
    yield make("h3", { textContent: "Figures" });
    yield make("dl", { className: "terms" }, ...figures.flatMap(([name, value]) =>
      [make("dt", { textContent: name }), make("dd", { textContent: typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : value })]));
    yield make("h3", { textContent: "Kernels" });
    yield make("p", {}, ...(details.kernels.length ? details.kernels.flatMap((name, index) => [index ? ", " : "", make("code", { textContent: name })]) : ["No quantized kernel ran."]));
    if (details.outputs.length) {
      yield make("h3", { textContent: "Error against the golden" });
      for (const [number, output] of details.outputs.entries()) yield* errors(number, output);
    }
    const others = [];
    for (let other = 0; other < count; other++) {
      if (other !== run && runs.pattern[other] === runs.pattern[run] &&
        ["dtype", "flow", "variant", "profile"].every((name) => runs[name][other] === runs[name][run])) others.push(other);
    }
    if (others.length) {
      yield make("h3", { textContent: "The same case elsewhere" });
      yield make("ul", { className: "runs elsewhere" }, ...others.map((other) => {
        const button = make("button", { type: "button" }, badge(other), make("span", { textContent: columnName(runs.column[other]) }));
        button.addEventListener("click", () => openRun(other));
        return make("li", {}, button);
      }));
    }
    for (const [name, text] of Object.entries(details.sections || {})) {
      yield make("details", {}, make("summary", { textContent: name }), make("pre", { tabIndex: 0 }, make("code", { textContent: text })));
    }
    yield make("h3", { textContent: "Reproduction" });
    if (details.reproduction) yield* copyable(details.reproduction, "Copy the script");
    yield* copyable(details.command, "Copy the command");
    if (details.sections === null) yield make("p", { className: "quiet", textContent: "Graphs, qparams and errors by position were not recorded: there was no file of details beside the rows, or the run conforms to a property." });
  }

  function* errors(number, output) {
    const unit = output.unit === "steps" ? "quantization steps" : "output values";
    const low = Math.min(0, ...output.offsets), high = Math.max(0, ...output.offsets);
    const kept = output.positions.length;
    let description = `Output ${number}: ${output.output}. `;
    if (output.unit === "no match") description += "Its shape is not the golden's, so that nothing can be compared.";
    else if (!output.differing) description += `All ${output.total} elements are the golden's.`;
    else {
      description += `${output.differing} of ${output.total} elements are off, by ${low} to ${high} ${unit}; ${output.ties.length} of those shown are ties, where either of two codes is right.`;
      if (kept < output.differing) description += ` The plot has the ${kept} that are off furthest; the histogram has all.`;
    }
    const caption = make("figcaption", { textContent: description });
    if (!kept) return yield make("figure", {}, caption);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const tied = new Set(output.ties);
    const axis = (label) => ({ label, stroke: color("--front"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") }, labelSize: 20, size: 46 });
    const places = make("div"), bars = make("div");
    yield make("figure", {}, caption, make("div", { className: "plots" }, places, bars));
    queueMicrotask(() => requestAnimationFrame(() => {
      if (!places.isConnected) return;
      const size = { width: Math.max(260, places.clientWidth), height: 240 };
      const points = (fill, stroke, size) => ({ paths: () => null, points: { show: true, size, fill, stroke, width: 1.5 } });
      plots.push(new uPlot({
        ...size, title: `Error by position`, scales: { x: { time: false, range: [0, Math.max(1, output.total - 1)] } },
        axes: [axis("flat index of the element"), axis(unit)],
        series: [{ label: "position" },
          { label: "error", stroke: color("--bar-crashes"), ...points(color("--bar-crashes"), color("--bar-crashes"), 6) },
          { label: "tie", stroke: color("--quiet"), ...points(color("--back"), color("--quiet"), 7) }],
      }, [output.positions, output.offsets.map((value, index) => (tied.has(output.positions[index]) ? null : value)),
        output.offsets.map((value, index) => (tied.has(output.positions[index]) ? value : null))], places));
      const histogram = output.histogram;
      plots.push(new uPlot({
        ...size, title: "Histogram of errors", scales: { x: { time: false, range: (_, from, to) => [from - 1, to + 1] }, y: { range: (_, from, to) => [0, to * 1.05] } },
        axes: [axis(unit), axis("elements")],
        series: [{ label: "error" }, { label: "elements", stroke: color("--bar-deviates"), fill: color("--bar-deviates"), paths: uPlot.paths.bars({ size: [0.8, 40] }), points: { show: false } }],
      }, [histogram.map(([value]) => value), histogram.map(([, total]) => total)], bars));
      for (const [canvas, name] of [[places, "Error by position"], [bars, "Histogram of errors"]]) {
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${name} of output ${number}: ${description}`);
      }
    }));
    const worst = output.positions.map((position, index) => [position, output.offsets[index]]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 10);
    yield make("details", {}, make("summary", { textContent: `The ${worst.length} elements of output ${number} that are off furthest` }),
      make("table", { className: "lines" }, make("thead", {}, make("tr", {}, make("th", { scope: "col", textContent: "flat index" }), make("th", { scope: "col", textContent: `error in ${unit}` }))),
        make("tbody", {}, ...worst.map(([position, value]) => make("tr", {}, make("td", { textContent: position }), make("td", { textContent: value }))))));
  }

  // Address

  function save() {
    const values = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    for (const [name, list] of [["family", data.families], ["dtype", data.dtypes]]) {
      if (values.has(name)) values.set(name, list[Number(values.get(name))]);
    }
    history.replaceState(null, "", values.size ? `#${values}` : location.pathname.split("/").pop());
  }

  function restore() {
    const values = new URLSearchParams(location.hash.slice(1));
    if (location.hash === "#main") return;
    for (const [name, list] of [["family", data.families], ["dtype", data.dtypes]]) {
      if (values.has(name)) values.set(name, list.indexOf(values.get(name)));
    }
    for (const field of form.elements) {
      if (!field.name) continue;
      if (field.type === "checkbox") field.checked = values.get(field.name) === field.value;
      else field.value = values.get(field.name) || "";
    }
    render();
    if (values.size && !values.has("run")) document.getElementById("map-title").scrollIntoView();
    if (values.has("run")) {
      const same = [...runs.column.keys()].filter((run) => id(run) === values.get("run"));
      const onPlatform = same.find((run) => data.columns[runs.column[run]].platform === values.get("on"));
      const run = onPlatform ?? same.find((run) => runs.flags[run] & DIAGNOSED) ?? same[0] ?? -1;
      if (run >= 0) openRun(run);
      else show(values.get("run"), make("p", { textContent: "There is no such run in this report." }));
    }
  }

  function index(report) {
    data = report;
    runs = Object.fromEntries(Object.entries(data.runs).map(([name, values]) => [name, Int32Array.from(values)]));
    count = runs.column.length;
    matching = new Uint8Array(count);
    pivot = new Uint32Array(4 * data.patterns.length * data.columns.length);
    data.order = [...data.patterns.keys()].sort((a, b) => {
      const first = data.patterns[a], second = data.patterns[b];
      return data.families[first.family].localeCompare(data.families[second.family]) || first.name.localeCompare(second.name);
    });
    const options = (name, list, values) => form.elements[name].append(...list.map((text, index) => make("option", { value: values ? values[index] : index, textContent: text })));
    const sorted = [...data.dtypes.keys()].sort((a, b) => data.dtypes[a].localeCompare(data.dtypes[b]));
    options("family", data.families);
    options("dtype", sorted.map((index) => data.dtypes[index]), sorted);
    options("check", data.failures, data.failures);
    options("verdict", data.verdicts, data.verdicts);
    let typing = 0;
    form.addEventListener("input", () => {
      cancelAnimationFrame(typing);
      typing = requestAnimationFrame(() => { render(); save(); });
    });
    form.addEventListener("reset", () => setTimeout(() => { render(); save(); }));
    form.addEventListener("submit", (event) => event.preventDefault());
    table.addEventListener("keydown", move);
    table.addEventListener("click", (event) => {
      const button = event.target.closest("button.cell");
      if (!button) return;
      opener = button;
      openCell(Number(button.dataset.pattern), Number(button.dataset.column));
    });
    document.getElementById("close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => {
      save();
      if (opener && opener.isConnected) opener.focus();
    });
    addEventListener("hashchange", restore);
    restore();
    setTimeout(searched, 50);  // prepares the search texts before the first input
  }

  return { index, chunk };
})();
