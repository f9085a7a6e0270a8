// The parts of a model as people say them: the probe "encoder.0.self" is "encoder, block 0, self-attention".

import { t } from "./i18n.js";

const STACKS = { encoder: t("encoder"), decoder: t("decoder") };
const PARTS = {
  embedded: t("embedding"), self: t("self-attention"), cross: t("cross-attention"),
  "feed_forward.inner": t("feed-forward"), "feed_forward.output": t("output of the feed-forward"),
  hidden: t("output"), "cell.hidden": t("hidden state"), "cell.memory": t("memory cell"),
};

/** A probe, a layer or a block by its plain name; a name that is not known stays as it is. */
export function partName(name) {
  const [, stack, block, part] = /^(\w+?)(?:\.(\d+))?(?:\.(\D.*))?$/.exec(name) ?? [];
  if (!(stack in STACKS) || (part !== undefined && !(part in PARTS))) return name;
  return [STACKS[stack], ...(block === undefined ? [] : [t("block {block}", { block })]),
    ...(part === undefined ? [] : [PARTS[part]])].join(", ");
}

/** The names of blocks or layers by what they have in common: {"encoder.self": ["encoder.0.self", …]}. */
export function byKind(names) {
  const kinds = {};
  for (const name of names) (kinds[name.replace(/\.\d+/, "")] ??= []).push(name);
  return kinds;
}

/** The block of a part, without its stack: "block 0". */
export function blockName(name) {
  return t("block {block}", { block: /\.(\d+)/.exec(name)?.[1] ?? name });
}

/** A head, "encoder.0.self:3", or any other part by its plain name. */
export function headName(name) {
  const [part, head] = name.split(":");
  return head === undefined ? partName(part) : t("{part}, head {head}", { part: partName(part), head });
}
