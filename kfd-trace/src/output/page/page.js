"use strict";
// Keeps the page up to date: fetches the sections that have changed, counts ages on, and filters, sorts and goes through
// the past without leaving the page. Without this script links, forms and a reload do the same.
(() => {
  const EVERY_MS = 5000;
  const TYPING_MS = 300;
  const line = document.getElementById("refresh");
  const button = document.createElement("button");
  const message = document.createElement("span");
  button.type = "button";
  line.replaceChildren(button, " ", message);
  // Screen readers do not announce changes every few seconds; the button's label shows what it does.
  line.removeAttribute("aria-live");
  let paused = false;
  // Of the server's clock against this one, milliseconds.
  let ahead = 0;
  // Only the last request that was begun may change the page.
  let latest = 0;

  const main = () => document.querySelector("main");
  const shown = () => new URL(location.href);
  const isPast = () => (shown().searchParams.get("at") ?? "") !== "";

  const report = (text) => {
    if (message.textContent !== text) message.textContent = text;
  };
  const show = () => {
    button.textContent = paused ? "Go on" : "Pause";
    button.hidden = isPast();
    report(isPast() ? "A time in the past." : paused ? "Not refreshed." : `Refreshed every ${EVERY_MS / 1000} seconds.`);
  };
  const selecting = () => !(document.getSelection()?.isCollapsed ?? true);

  // As the server writes it: 42s, 5m 3s, 2d 3h 4m 5s.
  const age = (seconds) => {
    const parts = [
      [Math.floor(seconds / 86400), "d"],
      [Math.floor(seconds / 3600) % 24, "h"],
      [Math.floor(seconds / 60) % 60, "m"],
      [seconds % 60, "s"],
    ];
    const some = parts.filter(([count]) => count > 0).map(([count, unit]) => `${count}${unit}`);
    return some.join(" ") || "0s";
  };
  const tick = () => {
    const now = Date.now() + ahead;
    for (const time of main().querySelectorAll("time.age")) {
      const since = Date.parse(time.dateTime);
      if (Number.isFinite(since)) time.textContent = age(Math.max(0, Math.floor((now - since) / 1000)));
    }
    for (const time of main().querySelectorAll("time.now")) {
      const text = new Date(now).toISOString();
      time.dateTime = text;
      time.textContent = text.slice(0, 19).replace("T", " ");
    }
  };

  // Keeps what the reader has opened, scrolled and focused in a section.
  const renew = (old, fresh) => {
    const kept = [...old.querySelectorAll("[aria-labelledby].box")].map((box) => [
      box.getAttribute("aria-labelledby"),
      box.scrollLeft,
      box === document.activeElement,
    ]);
    for (const details of old.querySelectorAll("details[open]")) {
      fresh.querySelector(`details[id="${CSS.escape(details.id)}"]`)?.setAttribute("open", "");
    }
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const [link, opener] = [focus?.getAttribute("href"), focus?.closest("details")?.id];
    old.replaceWith(fresh);
    const found = link ? `a[href="${CSS.escape(link)}"]` : opener ? `details[id="${CSS.escape(opener)}"] summary` : null;
    if (found) fresh.querySelector(found)?.focus({ preventScroll: true });
    for (const [name, left, focused] of kept) {
      const box = fresh.querySelector(`.box[aria-labelledby="${CSS.escape(name)}"]`);
      if (!box) continue;
      box.scrollLeft = left;
      if (focused) box.focus({ preventScroll: true });
    }
  };
  // An empty section is one that has not changed.
  const place = (page) => {
    const fresh = [...page.querySelectorAll("main > section")];
    const ids = new Set(fresh.map((section) => section.id));
    for (const old of main().querySelectorAll(":scope > section")) {
      if (!ids.has(old.id)) old.remove();
    }
    let before = null;
    for (const section of fresh) {
      const old = document.getElementById(section.id);
      let here = old;
      if (old === null) here = section;
      else if (section.childElementCount > 0) {
        renew(old, section);
        here = section;
      }
      const next = before === null ? main().firstElementChild : before.nextElementSibling;
      if (next !== here) main().insertBefore(here, next);
      before = here;
    }
  };
  const fields = (page) => {
    for (const id of ["filter", "past"]) {
      const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
      if (old && fresh && !old.contains(document.activeElement)) old.replaceWith(fresh);
    }
    slide();
  };

  // Fetches what is new; `moved`: of another address.
  const look = async (moved) => {
    if (!moved && (paused || isPast() || document.hidden || selecting())) return;
    const number = ++latest;
    const url = shown();
    const tags = [...main().querySelectorAll(":scope > section")].map((section) => section.dataset.tag);
    url.searchParams.set("have", tags.join("."));
    try {
      const answer = await fetch(url, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status === 400 ? (await answer.text()).trim() : `status ${answer.status}`);
      const date = Date.parse(answer.headers.get("date") ?? "");
      const text = await answer.text();
      if (number !== latest || (paused && !moved)) return;
      if (Number.isFinite(date)) ahead = date - Date.now();
      if (answer.status !== 204) {
        const page = new DOMParser().parseFromString(text, "text/html");
        if (!page.querySelector("main > section")) throw new Error("another page");
        place(page);
        document.title = page.title;
        if (moved) fields(page);
      }
      show();
      tick();
    } catch (error) {
      if (number === latest) report(`Not refreshed (${error.message}): this content is old.`);
    }
  };

  const go = (url) => {
    history.pushState(null, "", url);
    void look(true);
  };
  // The address that a form asks for, without its empty fields.
  const asked = (form) => {
    const url = new URL(form.action);
    url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
    return url;
  };
  document.addEventListener("submit", (event) => {
    if (!["filter", "past"].includes(event.target.id)) return;
    event.preventDefault();
    go(asked(event.target));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.sort");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.href);
  });
  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("#filter, #past");
    if (!form || event.target.id === "at") return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      history.replaceState(null, "", asked(form));
      void look(true);
    }, TYPING_MS);
  });
  addEventListener("popstate", () => void look(true));

  // A slider over the time since the daemon began: its end is now.
  const slide = () => {
    const form = document.getElementById("past");
    const field = form?.querySelector("#at");
    if (!field || form.querySelector("[type=range]")) return;
    const slider = document.createElement("input");
    slider.type = "range";
    slider.setAttribute("aria-label", "Time since the daemon began");
    const began = Number(form.dataset.began);
    const now = Math.floor((Date.now() + ahead) / 1000);
    slider.min = String(began);
    slider.max = String(Math.max(now, began + 1));
    slider.step = "1";
    const at = Date.parse(field.value);
    slider.value = Number.isFinite(at) ? String(Math.floor(at / 1000)) : slider.max;
    slider.addEventListener("input", () => {
      const isNow = slider.value === slider.max;
      field.value = isNow ? "" : new Date(Number(slider.value) * 1000).toISOString().replace(".000", "");
    });
    field.before(slider);
  };

  button.addEventListener("click", () => {
    paused = !paused;
    show();
    void look(false);
  });
  show();
  slide();
  const again = () => void look(false).finally(() => setTimeout(again, EVERY_MS));
  setTimeout(again, EVERY_MS);
  setInterval(() => {
    if (!paused && !document.hidden && !selecting() && !isPast()) tick();
  }, 1000);
})();
