// Light or dark: as the page of Airflow around this one, else as the system.

export type Theme = "light" | "dark";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function outside(): HTMLElement | null {
  try {
    return window.parent !== window ? window.parent.document.documentElement : null;
  } catch {
    return null; // of another origin
  }
}

export function theme(): Theme {
  const around = outside();
  if (around?.classList.contains("dark")) return "dark";
  if (around?.classList.contains("light")) return "light";
  let kept: string | null = null;
  try {
    kept = window.localStorage.getItem("theme"); // where Airflow keeps it
  } catch {
    kept = null;
  }
  if (kept === "dark" || kept === "light") return kept;
  return system.matches ? "dark" : "light";
}

// The two scripts of a page share nothing but the attribute.
export function onTheme(listener: () => void): void {
  new MutationObserver(listener).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
}

export function followTheme(): void {
  const apply = (): void => {
    const now = theme();
    if (document.documentElement.dataset.theme !== now) document.documentElement.dataset.theme = now;
  };
  apply();
  system.addEventListener("change", apply);
  window.addEventListener("storage", apply);
  const around = outside();
  if (around) new MutationObserver(apply).observe(around, { attributes: true, attributeFilter: ["class"] });
}
