// What an answer owes to each token, by integrated gradients: without attention weights.
//
// data: Gradients, format "clearhead-gradients-1". chosen: {query}.

import { attribution } from "./attribution.js";
import { widget } from "./frame.js";
import { t } from "./i18n.js";

export const FORMAT = "clearhead-gradients-1";

export const mount = attribution("gradients", t("Integrated gradients"),
  t("Blue tokens made this answer likelier, red ones less likely. " +
  "All numbers together are the difference to an empty input."));

export default widget(mount);
