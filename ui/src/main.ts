// What the pages do beyond the HTML that the server made.
import { followLinks } from "./airflow";
import { drawCharts } from "./charts";
import { keepFresh, loadParts } from "./live";
import { keepArranged, makeTable } from "./table";

document.body.dataset.ready = "";
followLinks();
makeTable();
drawCharts(document);
loadParts(document);
keepFresh(keepArranged);
