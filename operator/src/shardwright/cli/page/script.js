"use strict";
// Sorting and filtering of the candidates; the page says everything without it.
(() => {
  const table = document.querySelector("table.candidates");
  const form = document.querySelector("form.filter");
  if (!table || !form) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const find = document.getElementById("find");
  const reason = document.getElementById("reason");
  const shown = document.getElementById("shown");

  const filter = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = (row.dataset.arrangement + " " + row.textContent).toLowerCase();
      row.hidden = !(words.every((w) => text.includes(w)) && (!reason.value || row.dataset.reason === reason.value));
      if (!row.hidden) count += 1;
    }
    shown.textContent = count === rows.length ? "" : count + " of " + rows.length;
  };

  const key = (row, column) => row.cells[column].dataset.sort || "";
  const compare = (a, b, number) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return number ? Number(a) - Number(b) : a.localeCompare(b, "en");
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const number = head.classList.contains("num");
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...rows].sort((x, y) => {
        const [a, b] = [key(x, column), key(y, column)];
        return a === "" || b === "" ? compare(a, b, number) : compare(a, b, number) * (down ? -1 : 1);
      });
      body.append(...sorted);
    });
  });

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", filter);
  reason.addEventListener("change", filter);
})();
