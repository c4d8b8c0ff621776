// Runs before the page is drawn: the rest of the script is larger and comes later.
import { followTheme } from "./theme";

followTheme();
