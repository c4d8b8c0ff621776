// Builds the script and the styles of tidegate's pages into src/tidegate/airflow/ui/static: `node build.mjs [--out FOLDER]`.
// The same sources always give the same bytes. manifest.json names the files and has the digest of the sources.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const asked = process.argv.indexOf("--out");
const out = asked > 0 ? process.argv[asked + 1] : join(here, "../src/tidegate/airflow/ui/static");

function listFiles(folder) {
  const found = readdirSync(folder, { withFileTypes: true }).map((one) =>
    one.isDirectory() ? listFiles(join(folder, one.name)) : [join(folder, one.name)],
  );
  return found.flat().sort();
}

// As tools/ui.py computes it: the name and the bytes of each file, by name.
function digestSources() {
  const hash = createHash("sha256");
  const files = [...listFiles(join(here, "src")), join(here, "build.mjs"), join(here, "package.json"), join(here, "package-lock.json")];
  for (const path of files.map((one) => relative(here, one).split("\\").join("/")).sort()) {
    const data = readFileSync(join(here, path));
    hash.update(`${path}\0${data.length}\0`).update(data);
  }
  return hash.digest("hex");
}

const made = await build({
  absWorkingDir: here,
  entryPoints: { theme: "src/theme_entry.ts", script: "src/main.ts", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2021", "chrome100", "firefox100", "safari15"],
  charset: "utf8",
  legalComments: "none",
  outdir: out,
  write: false,
  logLevel: "warning",
});

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const names = {};
for (const file of made.outputFiles) {
  const [kind, suffix] = basename(file.path).split(".");
  const data = Buffer.from(file.contents);
  const digest = createHash("sha256").update(data).digest("hex").slice(0, 12);
  names[kind] = `tidegate-${kind}-${digest}.${suffix}`;
  writeFileSync(join(out, names[kind]), data);
}
const licences = ["echarts/LICENSE", "echarts/NOTICE", "zrender/LICENSE", "tslib/LICENSE.txt"].map((path) => {
  const text = readFileSync(join(here, "node_modules", path), "utf8").replace(/\r\n/g, "\n").trimEnd();
  return `==== ${path} ====\n\n${text}\n`;
});
writeFileSync(join(out, "licences.txt"), `The script holds Apache ECharts, zrender and tslib.\n\n${licences.join("\n")}`);
const manifest = { theme: names.theme, script: names.script, style: names.style, sources: digestSources() };
writeFileSync(join(out, "manifest.json"), JSON.stringify(manifest, null, 2) + "\n");
