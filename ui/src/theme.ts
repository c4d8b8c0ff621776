// Light or dark: as the page of Airflow around this one, else as the system.
import { outerWindow } from "./airflow";

export type Theme = "light" | "dark";
const system = window.matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  const outer = outerWindow()?.document.documentElement.classList;
  if (outer?.contains("dark")) return "dark";
  if (outer?.contains("light")) return "light";
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
  const outer = outerWindow();
  if (outer) new MutationObserver(apply).observe(outer.document.documentElement, { attributes: true, attributeFilter: ["class"] });
}
