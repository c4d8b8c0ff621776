// What the pages do beyond the HTML that the server made.
import { followLinks } from "./airflow";
import { drawCharts } from "./charts";
import { openDialogs } from "./dialogs";
import { keepFresh, loadParts } from "./live";
import { keepArranged, makeTable } from "./table";

document.body.dataset.ready = "";
followLinks();
openDialogs();
makeTable();
drawCharts(document);
loadParts(document);
keepFresh(keepArranged);
