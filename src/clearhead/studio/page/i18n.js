// The language of the Studio: that of the link (?lang=de), the one that was chosen before, or that
// of the browser.

import { setLanguage } from "./views/i18n.js";

export { count, decimal, plural, t, tParts, translated } from "./views/i18n.js";

export const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français",
  pt: "Português" };

const STORE = "language";

/** The language in which the page is shown. */
export function language() {
  const asked = new URLSearchParams(location.search).get("lang");
  const wanted = [asked, localStorage.getItem(STORE), ...navigator.languages]
    .map((each) => each?.slice(0, 2));
  return wanted.find((each) => each in LANGUAGES) ?? "en";
}

/** Load the sentences of the language; modules that are imported afterwards find them. */
export async function loadLanguage() {
  const name = language();
  document.documentElement.lang = name;
  if (name === "en") return;
  const response = await fetch(`${name}.json`);
  if (response.ok) setLanguage(name, await response.json());
}

/** Show the page in another language, now and at the next visit. */
export function chooseLanguage(name) {
  localStorage.setItem(STORE, name);
  const address = new URL(location.href);
  address.searchParams.delete("lang");
  if (address.href === location.href) location.reload();
  else location.replace(address);
}
