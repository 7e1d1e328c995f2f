"use strict";
// Hides the items of a page that do not match its filters. The filters are in the address, so that a view can be linked.
(() => {
  const form = document.getElementById("filter");
  const status = document.getElementById("matching");
  const items = [...document.querySelectorAll(form.dataset.items)].filter((item) => !("heading" in item.dataset));
  const headings = [...document.querySelectorAll("[data-heading]")];
  const words = items.map((item) => item.textContent.toLowerCase());

  function apply() {
    const wanted = [...new FormData(form)].filter(([, value]) => value);
    const texts = wanted.filter(([name]) => name === "q").flatMap(([, value]) => value.toLowerCase().split(/\s+/).filter(Boolean));
    let matching = 0;
    items.forEach((item, number) => {
      const fits = texts.every((text) => words[number].includes(text)) &&
        wanted.every(([name, value]) => name === "q" || item.dataset[name] === value || (item.dataset[name] || "").split(" ").includes(value));
      item.hidden = !fits;
      matching += fits;
    });
    for (const heading of headings) heading.hidden = ![...heading.parentElement.children].some((row) => row !== heading && !row.hidden);
    status.textContent = `${matching} of ${items.length} ${form.dataset.noun}`;
  }

  function remember() {
    const parameters = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", `?${parameters}${location.hash}`);
    apply();
  }

  for (const [name, value] of new URLSearchParams(location.search)) if (form.elements[name]) form.elements[name].value = value;
  form.addEventListener("input", remember);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(remember));
  apply();
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) target.scrollIntoView();
})();
