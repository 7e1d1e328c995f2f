"use strict";
// Hides the items of a page that do not match its filters. The filters are in the address, so that a view can be linked.
(() => {
  const form = document.getElementById("filter");
  const status = document.getElementById("matching");
  const items = [...document.querySelectorAll(form.dataset.items)];
  const groups = [...document.querySelectorAll("details.group")].map((group) => [group, group.open]);
  // names are found as people write them: ResNet-50 is resnet50, MobileNetV2 mobilenet_v2
  const plain = (text) => text.toLowerCase().replace(/[-_]/g, "");
  const words = items.map((item) => plain(item.dataset.words || item.textContent));
  const unfiltered = [...document.querySelectorAll("[data-unfiltered]")];
  let ofFile = null;

  const has = (item, name, value) => (item.dataset[name] || "").split(" ").includes(value);

  function apply() {
    const wanted = [...new FormData(form)].filter(([name, value]) => value && name !== "file");
    const texts = wanted.filter(([name]) => name === "q").flatMap(([, value]) => plain(value).split(/\s+/).filter(Boolean));
    const { networks, engines } = Object.fromEntries(wanted);
    const pair = networks && engines && `${networks}@${engines}`;
    let matching = 0;
    items.forEach((item, number) => {
      const fits = texts.every((text) => words[number].includes(text)) && (!ofFile || ofFile.has(item.id)) &&
        wanted.every(([name, value]) => name === "q" || has(item, name, value)) && (!pair || has(item, "networks", pair));
      item.hidden = !fits;
      matching += fits;
    });
    const filtered = wanted.length > 0 || ofFile !== null;
    for (const [group, open] of groups) {
      const own = items.filter((item) => group.contains(item));
      group.hidden = own.length > 0 && own.every((item) => item.hidden);
      group.open = filtered ? own.some((item) => !item.hidden) : open;
    }
    for (const part of unfiltered) part.hidden = filtered;
    const named = items.find((item) => item.dataset.name && plain(item.dataset.name) === texts.join(""));
    if (named) named.parentNode.prepend(named);
    status.textContent = `${matching} of ${items.length} ${form.dataset.noun}`;
    if (!matching && networks) status.textContent += `: none is known to show in layers of ${networks}${engines ? ` on ${engines}` : ""}, each run alone`;
  }

  function remember() {
    const named = [...new FormData(form)].filter(([name, value]) => value && name !== "file");
    history.replaceState(null, "", `?${new URLSearchParams(named)}${location.hash}`);
    apply();
  }

  // The ids of the findings that the JSON of an audit or of a prediction names.
  function* causes(value) {
    if (value === null || typeof value !== "object") return;
    for (const [name, part] of Object.entries(value)) {
      if (name === "cause" && typeof part === "string") yield part;
      else yield* causes(part);
    }
  }

  async function read(file) {
    ofFile = null;
    let problem = "";
    if (file) {
      try {
        const value = JSON.parse(await file.text());
        if (value === null || typeof value !== "object" || !("layers" in value || Array.isArray(value))) throw new Error("no layers");
        ofFile = new Set(causes(value));
      } catch (error) {
        problem = `${file.name} is no JSON of an audit or a prediction (${error.message}): write one with --json. `;
      }
    }
    apply();
    status.textContent = problem + status.textContent;
  }

  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements[name];
    if (field && field.type !== "file") field.value = value;
  }
  form.addEventListener("input", (event) => (event.target.type === "file" ? read(event.target.files[0]) : remember()));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { ofFile = null; remember(); }));
  apply();

  function show() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    const inner = target.querySelector(":scope > details");
    if (inner) inner.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", show);
  show();
})();
