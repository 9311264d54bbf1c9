"use strict";
// Fetches the page again and replaces the content of <main>. Without this script a reload does the same.
(() => {
  const EVERY_MS = 5000;
  const line = document.getElementById("refresh");
  const button = document.createElement("button");
  const message = document.createElement("span");
  button.type = "button";
  line.replaceChildren(button, " ", message);
  // Screen readers do not announce changes every few seconds; the button's label shows what it does.
  line.removeAttribute("aria-live");
  let paused = false;

  const report = (text) => {
    if (message.textContent !== text) message.textContent = text;
  };
  const show = () => {
    button.textContent = paused ? "Go on" : "Pause";
    report(paused ? "Not refreshed." : `Refreshed every ${EVERY_MS / 1000} seconds.`);
  };
  const selecting = () => !(document.getSelection()?.isCollapsed ?? true);

  // Keeps what the reader has opened, scrolled and focused.
  const renew = (fresh) => {
    const main = document.querySelector("main");
    const kept = [...main.querySelectorAll("[aria-labelledby].box")].map((box) => [
      box.getAttribute("aria-labelledby"),
      box.scrollLeft,
      box === document.activeElement,
    ]);
    for (const details of main.querySelectorAll("details[open]")) {
      fresh.querySelector(`details[id="${CSS.escape(details.id)}"]`)?.setAttribute("open", "");
    }
    const focus = main.contains(document.activeElement) ? document.activeElement : null;
    const [link, opener] = [focus?.getAttribute("href"), focus?.closest("details")?.id];
    main.replaceChildren(...fresh.childNodes);
    const found = link ? `a[href="${CSS.escape(link)}"]` : opener ? `details[id="${CSS.escape(opener)}"] summary` : null;
    if (found) main.querySelector(found)?.focus({ preventScroll: true });
    for (const [name, left, focused] of kept) {
      const box = main.querySelector(`.box[aria-labelledby="${CSS.escape(name)}"]`);
      if (!box) continue;
      box.scrollLeft = left;
      if (focused) box.focus({ preventScroll: true });
    }
  };

  const look = async () => {
    if (paused || document.hidden || selecting()) return;
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (!fresh) throw new Error("another page");
      if (paused) return;
      renew(fresh);
      document.title = page.title;
      show();
    } catch (error) {
      report(`Not refreshed (${error.message}): this content is old.`);
    }
  };

  button.addEventListener("click", () => {
    paused = !paused;
    show();
    void look();
  });
  show();
  const again = () => void look().finally(() => setTimeout(again, EVERY_MS));
  setTimeout(again, EVERY_MS);
})();
