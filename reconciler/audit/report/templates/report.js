// Optional: filters the violations. The page is complete without it.
"use strict";
(() => {
  const field = document.getElementById("filter");
  if (!field) return;
  const told = document.getElementById("filtered");
  const tables = [...document.querySelectorAll("#violations table.findings")];
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  const words = rows.map((row) => row.textContent.toLowerCase());
  field.parentElement.hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !wanted.every((word) => words[index].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    told.textContent = wanted.length ? `${shown} of ${rows.length} shown` : "";
  });
})();
