// The charts. Their data stand in the page as JSON; tooltips and labels are drawn on the canvas, never as HTML, so that
// no content security policy has to be opened and nothing of a record is ever parsed as markup.
import { BarChart, LineChart, SankeyChart } from "echarts/charts";
import { DataZoomInsideComponent, GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import * as echarts from "echarts/core";
import type { EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { go } from "./airflow";
import { moment, number, seconds, short } from "./formats";
import { onTheme } from "./theme";

echarts.use([BarChart, LineChart, SankeyChart, GridComponent, LegendComponent, TooltipComponent, DataZoomInsideComponent, CanvasRenderer]);

type Chart = ReturnType<typeof echarts.init>;
interface Placed {
  href: string;
  goto: string;
}
interface RowsOfRun extends Placed {
  id: string;
  at: string;
  state: string;
  read: number;
  published: number;
  malformed: number;
  late: number;
  rejected: number;
  waiting: number;
}
interface StepsOfRun extends Placed {
  id: string;
  at: string;
  steps: Record<string, number>;
}
interface Flow {
  nodes: Array<{ name: string; kind: string; rows: number; note: string }>;
  links: Array<{ source: string; target: string; rows: number }>;
}
interface Batch {
  batch_id: number;
  rows: number;
  rows_per_second: number | null;
  seconds: number | null;
}
interface Partition {
  name: string;
  rows: number;
  files: number;
  bytes: number;
}

const drawn = new Map<HTMLElement, { chart: Chart; text: string }>();
const FONT = "Inter, -apple-system, BlinkMacSystemFont, 'Segoe UI', Helvetica, Arial, sans-serif";

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function common(): EChartsCoreOption {
  return {
    animation: false,
    textStyle: { fontFamily: FONT, color: colour("text") },
    grid: { left: 8, right: 12, top: 34, bottom: 6, containLabel: true },
    legend: { top: 0, left: 0, itemWidth: 10, itemHeight: 10, icon: "roundRect", textStyle: { color: colour("dim"), fontSize: 12 } },
  };
}

// Formatters give text; "richText" draws it on the canvas.
function tooltip(more: object): object {
  return {
    renderMode: "richText",
    confine: true,
    backgroundColor: colour("panel"),
    borderColor: colour("line-strong"),
    textStyle: { color: colour("text"), fontSize: 12, fontFamily: FONT },
    ...more,
  };
}

function axis(kind: "x" | "y", format: (value: number) => string = short): object {
  const line = { lineStyle: { color: colour("line") } };
  return kind === "y"
    ? { type: "value", splitNumber: 4, axisLabel: { color: colour("dim"), formatter: format }, splitLine: line, axisLine: { show: false } }
    : { type: "category", axisLabel: { color: colour("dim"), hideOverlap: true }, axisLine: line, axisTick: { show: false } };
}

// Signs that the text of a canvas gives a meaning to: {style|text}.
function plain(text: string): string {
  return text.replace(/[{}|]/g, " ");
}

function rowsOption(runs: RowsOfRun[]): EChartsCoreOption {
  const parts: Array<[string, keyof RowsOfRun, string]> = [
    ["Published", "published", "c-published"],
    ["Malformed", "malformed", "c-quarantine"],
    ["Rejected", "rejected", "c-rejected"],
    ["Late", "late", "c-late"],
    ["Not in the table yet", "waiting", "c-waiting"],
  ];
  const shown = parts.filter(([, key]) => key === "published" || runs.some((run) => (run[key] as number) > 0));
  const sum = (key: keyof RowsOfRun): number => runs.reduce((all, run) => all + (run[key] as number), 0);
  // Where many records make one row, what was read would press everything else to the ground; a click shows it.
  const showsRead = sum("read") <= 8 * shown.reduce((all, [, key]) => all + sum(key), 0);
  return {
    ...common(),
    legend: { ...(common().legend as object), selected: { Read: showsRead } },
    tooltip: tooltip({
      trigger: "axis",
      axisPointer: { type: "shadow", shadowStyle: { color: "rgba(127,127,127,0.12)" } },
      formatter: (found: Array<{ dataIndex: number }>) => {
        const run = runs[found[0].dataIndex];
        const lines = shown.map(([name, key]) => `${name}: ${number(run[key] as number)}`);
        return [plain(`${moment(run.at)}  ${run.state}`), `Read: ${number(run.read)}`, ...lines].join("\n");
      },
    }),
    xAxis: { ...axis("x"), data: runs.map((run) => moment(run.at)) },
    yAxis: axis("y"),
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }],
    series: [
      ...shown.map(([name, key, tone]) => ({
        name,
        type: "bar",
        stack: "rows",
        barMaxWidth: 22,
        itemStyle: { color: colour(tone) },
        emphasis: { focus: "none" },
        data: runs.map((run) => run[key] as number),
      })),
      {
        name: "Read",
        type: "line",
        symbol: runs.length > 60 ? "none" : "circle",
        symbolSize: 4,
        lineStyle: { width: 1.5, color: colour("c-read") },
        itemStyle: { color: colour("c-read") },
        data: runs.map((run) => run.read),
      },
    ],
  };
}

function stepsOption(data: { steps: string[]; runs: StepsOfRun[] }): EChartsCoreOption {
  return {
    ...common(),
    tooltip: tooltip({
      trigger: "axis",
      axisPointer: { type: "shadow", shadowStyle: { color: "rgba(127,127,127,0.12)" } },
      formatter: (found: Array<{ dataIndex: number }>) => {
        const run = data.runs[found[0].dataIndex];
        return [moment(run.at), ...Object.entries(run.steps).map(([step, took]) => plain(`${step}: ${seconds(took)}`))].join("\n");
      },
    }),
    xAxis: { ...axis("x"), data: data.runs.map((run) => moment(run.at)) },
    yAxis: axis("y", seconds),
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }],
    series: data.steps.map((step, place) => ({
      name: step,
      type: "bar",
      stack: "steps",
      barMaxWidth: 22,
      itemStyle: { color: colour(`c-step${(place % 4) + 1}`) },
      emphasis: { focus: "none" },
      data: data.runs.map((run) => run.steps[step] ?? 0),
    })),
  };
}

const KINDS: Record<string, string> = {
  source: "c-read",
  step: "c-neutral",
  good: "c-published",
  bad: "c-quarantine",
  waits: "c-waiting",
  neutral: "c-neutral",
};

// A long name in two lines: the columns of the picture are close to each other.
function inLines(name: string): string {
  const space = name.lastIndexOf(" ");
  return name.length > 12 && space > 0 ? `${name.slice(0, space)}\n${name.slice(space + 1)}` : name;
}

function flowOption(flow: Flow, width: number): EChartsCoreOption {
  const narrow = width < 560;
  const most = narrow ? 16 : 30;
  const rows = new Map(flow.nodes.map((node) => [node.name, node.rows]));
  const kinds = new Map(flow.nodes.map((node) => [node.name, node.kind]));
  return {
    ...common(),
    tooltip: tooltip({
      trigger: "item",
      formatter: (found: { dataType: string; name: string; data: { source: string; target: string; rows: number } }) =>
        found.dataType === "edge"
          ? plain(`${found.data.source} → ${found.data.target}: ${number(found.data.rows)}`)
          : plain(`${found.name}: ${number(rows.get(found.name) ?? 0)}`),
    }),
    series: [
      {
        type: "sankey",
        orient: narrow ? "vertical" : "horizontal",
        left: narrow ? 8 : 4,
        right: narrow ? 24 : 150,
        top: narrow ? 24 : 12,
        bottom: narrow ? 40 : 12,
        nodeWidth: narrow ? 12 : 14,
        nodeGap: narrow ? 66 : 22,
        draggable: false,
        layoutIterations: 48,
        emphasis: { focus: "adjacency" },
        lineStyle: { color: "source", opacity: 0.28, curveness: 0.5 },
        label: {
          color: colour("text"),
          fontSize: narrow ? 10.5 : 12,
          fontFamily: FONT,
          position: narrow ? "bottom" : "right",
          formatter: (found: { name: string }) => `${inLines(plain(found.name.length > most ? `${found.name.slice(0, most - 1)}…` : found.name))}\n${short(rows.get(found.name) ?? 0)}`,
          lineHeight: 15,
        },
        data: flow.nodes.map((node) => ({ name: node.name, itemStyle: { color: colour(KINDS[node.kind]), borderWidth: 0 } })),
        // A flow that is small beside the others is still seen: the width is drawn from the rows, but never below a hair.
        links: flow.links.map((link) => ({
          ...link,
          value: Math.max(link.rows, Math.max(...flow.links.map((one) => one.rows)) / 120),
          lineStyle: { color: colour(KINDS[kinds.get(link.target) ?? "step"]), opacity: kinds.get(link.target) === "step" ? 0.22 : 0.42 },
        })),
      },
    ],
  };
}

function batchesOption(batches: Batch[]): EChartsCoreOption {
  return {
    ...common(),
    tooltip: tooltip({
      trigger: "axis",
      formatter: (found: Array<{ dataIndex: number }>) => {
        const one = batches[found[0].dataIndex];
        const speed = one.rows_per_second === null ? "not told yet" : `${short(one.rows_per_second)} rows per second`;
        return `Batch ${one.batch_id}\n${number(one.rows)} rows${one.seconds === null ? "" : ` in ${seconds(one.seconds)}`}\n${speed}`;
      },
    }),
    grid: { left: 8, right: 8, top: 34, bottom: 6, containLabel: true },
    xAxis: { ...axis("x"), data: batches.map((one) => `${one.batch_id}`) },
    yAxis: [axis("y"), { ...axis("y"), splitLine: { show: false } }],
    series: [
      { name: "Rows", type: "bar", barMaxWidth: 26, itemStyle: { color: colour("c-step1") }, data: batches.map((one) => one.rows) },
      { name: "Rows per second", type: "line", yAxisIndex: 1, symbolSize: 5, itemStyle: { color: colour("c-step2") }, lineStyle: { width: 1.5 }, data: batches.map((one) => one.rows_per_second) },
    ],
  };
}

function partitionsOption(partitions: Partition[]): EChartsCoreOption {
  return {
    ...common(),
    legend: { show: false },
    grid: { left: 8, right: 12, top: 12, bottom: 6, containLabel: true },
    tooltip: tooltip({
      trigger: "axis",
      axisPointer: { type: "shadow", shadowStyle: { color: "rgba(127,127,127,0.12)" } },
      formatter: (found: Array<{ dataIndex: number }>) => {
        const one = partitions[found[0].dataIndex];
        return plain(`${one.name}\n${number(one.rows)} rows in ${number(one.files)} files`);
      },
    }),
    xAxis: { ...axis("x"), data: partitions.map((one) => one.name.replace(/^[^=,]*=/, "")) },
    yAxis: axis("y"),
    series: [{ name: "Rows", type: "bar", barMaxWidth: 26, itemStyle: { color: colour("c-read") }, data: partitions.map((one) => one.rows) }],
  };
}

function sparkOption(values: number[]): EChartsCoreOption {
  return {
    animation: false,
    grid: { left: 1, right: 1, top: 3, bottom: 2 },
    xAxis: { type: "category", show: false, boundaryGap: false, data: values.map((_, place) => place) },
    yAxis: { type: "value", show: false, min: 0 },
    series: [
      { type: "line", silent: true, symbol: "none", data: values, lineStyle: { width: 1.5, color: colour("c-published") }, areaStyle: { color: colour("c-published"), opacity: 0.14 } },
    ],
  };
}

function optionOf(place: HTMLElement, text: string): EChartsCoreOption {
  if (place.dataset.spark !== undefined) return sparkOption(text.split(" ").map(Number));
  const data: unknown = JSON.parse(text);
  switch (place.dataset.chart) {
    case "rows":
      return rowsOption(data as RowsOfRun[]);
    case "steps":
      return stepsOption(data as { steps: string[]; runs: StepsOfRun[] });
    case "flow":
      return flowOption(data as Flow, place.clientWidth);
    case "batches":
      return batchesOption(data as Batch[]);
    case "partitions":
      return partitionsOption(data as Partition[]);
    default:
      return {};
  }
}

function runsOf(place: HTMLElement, text: string): Placed[] {
  if (place.dataset.chart === "rows") return JSON.parse(text) as Placed[];
  if (place.dataset.chart === "steps") return (JSON.parse(text) as { runs: Placed[] }).runs;
  return [];
}

function draw(place: HTMLElement): void {
  const text = place.dataset.spark ?? place.querySelector("script")?.textContent ?? "";
  if (!text) return;
  place.dataset.drawn = "";
  const room = document.createElement("div");
  room.className = "canvas";
  room.style.width = "100%";
  room.style.height = "100%";
  place.append(room);
  const chart = echarts.init(room, undefined, { renderer: "canvas" });
  chart.setOption(optionOf(place, text));
  drawn.set(place, { chart, text });
  const runs = runsOf(place, text);
  if (runs.length) {
    // Anywhere above a run's bar leads to the run.
    chart.getZr().on("click", (event) => {
      const found = chart.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]);
      const run = chart.containPixel("grid", [event.offsetX, event.offsetY]) ? runs[Math.round(found[0])] : undefined;
      if (run) go(run.href, run.goto);
    });
    chart.getZr().on("mousemove", (event) => chart.getZr().setCursorStyle(chart.containPixel("grid", [event.offsetX, event.offsetY]) ? "pointer" : "default"));
  }
}

const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || drawn.has(entry.target as HTMLElement)) continue;
      sight.unobserve(entry.target);
      draw(entry.target as HTMLElement);
    }
  },
  { rootMargin: "300px" },
);

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const known = drawn.get(entry.target as HTMLElement);
    if (!known) continue;
    known.chart.resize();
    if ((entry.target as HTMLElement).dataset.chart === "flow") known.chart.setOption(optionOf(entry.target as HTMLElement, known.text), true);
  }
});

// Draws every chart below a node, each when it comes into sight.
export function drawCharts(root: ParentNode): void {
  root.querySelectorAll<HTMLElement>("[data-chart], [data-spark]").forEach((place) => {
    if (drawn.has(place)) return;
    sight.observe(place);
    sizes.observe(place);
  });
}

// Lets go of the charts below a node that leaves the page.
export function dropCharts(root: Element): void {
  for (const [place, { chart }] of drawn) {
    if (!root.contains(place)) continue;
    chart.dispose();
    sizes.unobserve(place);
    drawn.delete(place);
  }
}

onTheme(() => drawn.forEach(({ chart, text }, place) => chart.setOption(optionOf(place, text), true)));
