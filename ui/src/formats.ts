// Figures as people read them; the server shows them the same way (src/tidegate/airflow/ui/formats.py).
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export function number(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

export function short(value: number): string {
  const size = Math.abs(value);
  for (const [at, base, unit] of [
    [1e12, 1e12, "T"],
    [1e9, 1e9, "G"],
    [1e6, 1e6, "M"],
    [1e4, 1e3, "k"],
  ] as Array<[number, number, string]>) {
    if (size >= at) return `${Number((value / base).toPrecision(3)).toLocaleString("en-US")} ${unit}`;
  }
  return Number(value.toPrecision(6)).toLocaleString("en-US");
}

export function seconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const parts: Array<[number, string]> = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor((whole % 86400) / 3600), "h"],
    [Math.floor((whole % 3600) / 60), "min"],
    [whole % 60, "s"],
  ];
  const largest = parts.findIndex(([count]) => count > 0);
  const shown = parts.slice(largest, largest + 2).filter(([count]) => count > 0);
  return shown.map(([count, unit]) => `${count} ${unit}`).join(" ");
}

export function moment(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${MONTHS[at.getUTCMonth()]} ${at.getUTCDate()}, ${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
}
