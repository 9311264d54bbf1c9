"use strict";
// Keeps the page up to date: fetches the sections that have changed, counts ages on, and filters, sorts and goes through
// the past without leaving the page. Without this script links, forms and a reload do the same.
(() => {
  const EVERY_MS = 5000;
  const TIMEOUT_MS = 15000;
  const TYPING_MS = 300;
  const line = document.getElementById("refresh");
  const button = document.createElement("button");
  const message = document.createElement("span");
  button.type = "button";
  // Announced by screen readers: it changes when something is wrong, or the reader has done something.
  message.setAttribute("role", "status");
  line.replaceChildren(button, " ", message);
  line.removeAttribute("aria-live");

  const main = () => document.querySelector("main");
  const here = () => location.pathname + location.search;
  // What is on the screen; the address changes before its page has come.
  let shown = here();
  let paused = false;
  // Why the last address that was asked for is not shown.
  let refused = "";
  // When the content was last known to be that of the server.
  let good = Date.now();
  // Of the server's clock against this one, milliseconds.
  let ahead = 0;
  // Only the last request that was begun may change the page.
  let latest = 0;
  let moving = false;
  let typing = 0;

  const isPast = () => (new URL(shown, location.href).searchParams.get("at") ?? "") !== "";
  const selecting = () => !(document.getSelection()?.isCollapsed ?? true);
  const report = (text) => {
    if (message.textContent !== text) message.textContent = text;
  };
  const show = () => {
    button.textContent = paused ? "Go on" : "Pause";
    button.hidden = isPast();
    if (refused !== "") report(refused);
    else if (isPast()) report("A time in the past.");
    else if (paused) report("Not refreshed.");
    else report(`Refreshed every ${EVERY_MS / 1000} seconds.`);
  };

  // The server's clock, from a page that has just come.
  const synchronize = () => {
    const now = Date.parse(main().querySelector("time.now")?.dateTime ?? "");
    if (Number.isFinite(now)) ahead = now - Date.now();
  };
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
  // Only while the content is that of now: old content keeps its time.
  const tick = () => {
    if (paused || isPast() || Date.now() - good > 2 * EVERY_MS || selecting()) return;
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
    const like = link ? `a[href="${CSS.escape(link)}"]` : opener ? `details[id="${CSS.escape(opener)}"] summary` : null;
    const which = like ? [...old.querySelectorAll(like)].indexOf(focus) : 0;
    old.replaceWith(fresh);
    if (like) {
      const found = fresh.querySelectorAll(like);
      (found[which] ?? found[0])?.focus({ preventScroll: true });
    }
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
      let kept = old;
      if (old === null) kept = section;
      else if (section.childElementCount > 0) {
        renew(old, section);
        kept = section;
      }
      const next = before === null ? main().firstElementChild : before.nextElementSibling;
      if (next !== kept) main().insertBefore(kept, next);
      before = kept;
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
    if (!moved && (moving || paused || isPast() || document.hidden || selecting())) return;
    const number = ++latest;
    moving = moved;
    const wanted = moved ? here() : shown;
    const url = new URL(wanted, location.href);
    const tags = [...main().querySelectorAll(":scope > section")].map((section) => section.dataset.tag);
    url.searchParams.set("have", tags.join("."));
    try {
      const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      const text = await answer.text();
      if (number !== latest || (paused && !moved)) return;
      if (moved && answer.status === 400) {
        refused = text.trim();
        show();
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      if (answer.status !== 204) {
        const page = new DOMParser().parseFromString(text, "text/html");
        if (!page.querySelector("main > section")) throw new Error("another page");
        const daemon = (of) => of.querySelector("#top")?.dataset.daemon;
        const top = page.querySelector("#top") !== null;
        if (top && daemon(page) !== daemon(document)) {
          // Another one answers now: all that is outside of the sections is old, too.
          location.reload();
          return;
        }
        place(page);
        if (top) synchronize();
        document.title = page.title;
        if (moved) fields(page);
      }
      shown = wanted;
      refused = "";
      good = Date.now();
      show();
      tick();
    } catch (error) {
      if (number === latest) report(`Not refreshed (${error.message}): this content is old.`);
    } finally {
      if (number === latest) moving = false;
    }
  };
  // What could not be fetched is tried again; not what was refused.
  const follow = () => look(refused === "" && here() !== shown);

  const go = (url) => {
    clearTimeout(typing);
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
  document.addEventListener("input", (event) => {
    const form = event.target.closest("#filter, #past");
    if (!form || event.target.id === "at") return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      history.replaceState(null, "", asked(form));
      void look(true);
    }, TYPING_MS);
  });
  addEventListener("popstate", () => {
    // A link within the page changes nothing else.
    if (here() !== shown || refused !== "") void look(true);
  });
  document.addEventListener("visibilitychange", () => void follow());

  // A slider over the time since the daemon began: its end is now.
  const slide = () => {
    const form = document.getElementById("past");
    const field = form?.querySelector("#at");
    if (!field || form.querySelector("[type=range]")) return;
    const slider = document.createElement("input");
    slider.type = "range";
    slider.setAttribute("aria-label", "Time since the daemon began");
    slider.min = form.dataset.began;
    slider.step = "1";
    const text = () => new Date(Number(slider.value) * 1000).toISOString().replace(".000", "");
    const name = () => slider.setAttribute("aria-valuetext", slider.value === slider.max ? "now" : text());
    const extend = () => {
      const atEnd = slider.value === slider.max;
      slider.max = String(Math.max(Math.floor((Date.now() + ahead) / 1000), Number(slider.min) + 1));
      if (atEnd) slider.value = slider.max;
    };
    extend();
    const at = Date.parse(field.value);
    slider.value = Number.isFinite(at) ? String(Math.floor(at / 1000)) : slider.max;
    name();
    for (const event of ["pointerdown", "focus"]) slider.addEventListener(event, extend);
    slider.addEventListener("input", () => {
      field.value = slider.value === slider.max ? "" : text();
      name();
    });
    field.before(slider);
  };

  button.addEventListener("click", () => {
    paused = !paused;
    show();
    void follow();
  });
  synchronize();
  show();
  slide();
  const again = () => void follow().finally(() => setTimeout(again, EVERY_MS));
  setTimeout(again, EVERY_MS);
  setInterval(() => {
    if (!document.hidden) tick();
  }, 1000);
})();
