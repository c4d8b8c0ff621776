// The table of pipelines: sorted by a click on a column, and shown in part by state or by what is typed.
const NUMBERS = new Set(["state", "published", "share", "lag", "version", "backlog"]);
let sorted: { key: string; down: boolean } = { key: "state", down: false };
let state = "";
let typed = "";

function rows(): HTMLTableRowElement[] {
  return Array.from(document.querySelectorAll<HTMLTableRowElement>("#pipelines tbody tr"));
}

// What a row is sorted by: said by the row, or by a part of it that was fetched.
function valueOf(row: HTMLTableRowElement, key: string): string {
  return row.dataset[key] ?? row.querySelector<HTMLElement>(`[data-${key}]`)?.dataset[key] ?? "";
}

function arrange(): void {
  const body = document.querySelector("#pipelines tbody");
  if (!body) return;
  const { key, down } = sorted;
  const found = rows();
  const before = found.slice();
  found.sort((one, two) => {
    const a = valueOf(one, key);
    const b = valueOf(two, key);
    const order = NUMBERS.has(key) ? Number(a) - Number(b) : a.localeCompare(b);
    return (down ? -order : order) || (one.dataset.name ?? "").localeCompare(two.dataset.name ?? "");
  });
  if (found.some((row, number) => row !== before[number])) body.append(...found);
  let seen = 0;
  found.forEach((row) => {
    const fits = !state || row.dataset.word === state || (["running", "paused"].includes(state) && row.dataset[state] !== undefined);
    row.hidden = !(fits && (!typed || (row.textContent ?? "").toLowerCase().includes(typed)));
    if (!row.hidden) seen += 1;
  });
  const said = document.getElementById("announce");
  if (said && (state || typed)) said.textContent = `${seen} of ${found.length} pipelines`;
}

function press(): void {
  document.querySelectorAll<HTMLElement>("[data-filter]").forEach((chip) => chip.setAttribute("aria-pressed", String(chip.dataset.filter === state)));
}

export function keepArranged(): void {
  press();
  arrange();
}

export function makeTable(): void {
  document.querySelectorAll<HTMLElement>("#pipelines th[data-sort]").forEach((head) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...Array.from(head.childNodes));
    head.append(button);
    button.addEventListener("click", () => {
      const key = head.dataset.sort ?? "state";
      sorted = { key, down: sorted.key === key ? !sorted.down : key !== "state" };
      document.querySelectorAll("#pipelines th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      arrange();
    });
  });
  document.addEventListener("click", (event) => {
    const chip = (event.target as Element | null)?.closest?.<HTMLElement>("[data-filter]");
    if (!chip) return;
    state = chip.dataset.filter === state ? "" : (chip.dataset.filter ?? "");
    keepArranged();
  });
  document.addEventListener("input", (event) => {
    const field = event.target as HTMLInputElement;
    if (field.id !== "find") return;
    typed = field.value.trim().toLowerCase();
    arrange();
  });
}
