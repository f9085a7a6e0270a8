// The start of the page: its language first, so that every module finds its sentences translated.

import { loadLanguage } from "./i18n.js";

await loadLanguage();
await import("./main.js");
