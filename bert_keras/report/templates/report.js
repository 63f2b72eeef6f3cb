"use strict";
// Sorts the rows of a table by the column whose heading is pressed; opens what is folded
// when a link leads there, and for paper.
(() => {
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  // Numbers as they are shown, without commas; NaN for other cells.
  const number = (text) => (/\d/.test(text) ? Number(text.replaceAll(",", "")) : NaN);

  const compare = (one, other) => {
    const [a, b] = [number(one), number(other)];
    return isNaN(a) || isNaN(b) ? words.compare(one, other) : a - b;
  };

  const sort = (table, place, falls) => {
    const text = (row) => row.cells[place].textContent.trim();
    const rows = [...table.tBodies[0].rows];
    const known = rows.filter((row) => text(row) !== "–");
    known.sort((one, other) => (falls ? -1 : 1) * compare(text(one), text(other)));
    table.tBodies[0].append(...known, ...rows.filter((row) => !known.includes(row)));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const old = head.getAttribute("aria-sort");
        // The largest number is the first that people look for.
        const falls = old ? old === "ascending" : head.classList.contains("number");
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", falls ? "descending" : "ascending");
        sort(table, place, falls);
      });
    });
  }

  const open = () => {
    const found = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = found?.querySelector("details");
    if (!details) return;
    details.open = true;
    found.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
})();
