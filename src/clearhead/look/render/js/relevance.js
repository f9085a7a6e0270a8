// What an answer rests on, by attention weights and the gradient of the answer.
//
// data: Relevance, format "clearhead-relevance-1". chosen: {query}.

import { attribution } from "./attribution.js";
import { widget } from "./frame.js";
import { t } from "./i18n.js";

export const FORMAT = "clearhead-relevance-1";

export const mount = attribution("relevance", t("Relevance"),
  t("Attention alone shows where a model looked. Relevance weighs every look by whether it made the answer likelier."));

export default widget(mount);
