/* Keeps a page current. The stream of the server says that something changed, never what: the page
   then fetches itself, with the rights of any request, and only what differs is replaced. Without
   this script everything works, and a page is as old as its last load. */
(() => {
  "use strict";
  const FIRST = 1000, LONGEST = 60000, SILENT = 45000, SLOW = 400;
  const SIGN_IN = "/session";
  const main = document.getElementById("main");
  const mark = document.getElementById("live");
  if (!main || !mark || !(main.dataset.stream || main.dataset.every)) return;
  const plain = { createHTML: (text) => text };
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("cloister", plain) : plain;

  let source = null, failures = 0, since = null, over = false;
  let retry = 0, silence = 0, beat = 0, running = false, again = false;

  const clock = () => new Date().toLocaleTimeString();

  const show = (text, live) => {
    if (mark.textContent !== text) mark.textContent = text;
    mark.classList.toggle("warn", !live);
  };

  const isLive = () => {
    failures = 0;
    since = null;
    show("Live", true);
  };

  const isNotLive = () => {
    since ??= clock();
    show(`Not updating since ${since}. Reconnecting…`, false);
  };

  /* What somebody has typed stays: a field that differs from what the server sent is theirs. */
  const isTyped = (field) => {
    if (field.type === "hidden") return false;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.options) return [...field.options].some((each) => each.selected !== each.defaultSelected && !(each.index === 0 && each.selected));
    return field.value !== field.defaultValue;
  };

  const keep = {
    beforeNodeMorphed: (old) =>
      !(old.nodeType === 1 && old.matches("input, textarea, select") && (old === document.activeElement || isTyped(old))),
    beforeAttributeUpdated: (name, element) => !(name === "open" && element.localName === "details"),
  };

  const leave = () => {
    over = true;
    close();
    window.location.reload();
  };

  const take = (text) => {
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    const fresh = page.getElementById("main");
    if (!fresh) return;
    document.title = page.title;
    const focused = document.activeElement?.id;
    Idiomorph.morph(main, fresh.childNodes, { morphStyle: "innerHTML", callbacks: keep });
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
    if (fresh.dataset.stream) main.dataset.stream = fresh.dataset.stream;
    if (!fresh.dataset.stream && !fresh.dataset.every) {
      over = true;
      close();
      mark.textContent = "";
    }
  };

  /* Returns whether the server answered. */
  const refresh = async () => {
    if (over) return true;
    if (running) {
      again = true;
      return true;
    }
    running = true;
    const slow = setTimeout(() => main.setAttribute("aria-busy", "true"), SLOW);
    try {
      const response = await fetch(window.location.href, { cache: "no-store", headers: { Accept: "text/html" } });
      if (response.redirected && new URL(response.url).pathname === SIGN_IN) {
        leave();
        return true;
      }
      if (response.status >= 429) return false;
      take(await response.text());
      return true;
    } catch {
      return false;
    } finally {
      clearTimeout(slow);
      main.removeAttribute("aria-busy");
      running = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  };

  const close = () => {
    clearTimeout(retry);
    clearTimeout(silence);
    clearInterval(beat);
    source?.close();
    source = null;
  };

  const later = () => {
    close();
    if (over) return;
    isNotLive();
    failures += 1;
    const delay = Math.min(LONGEST, FIRST * 2 ** (failures - 1));
    retry = setTimeout(async () => {
      /* One fetch tells a server that is down from a session that has ended. */
      if (await refresh()) open();
      else later();
    }, delay * (0.5 + Math.random() / 2));
  };

  const hear = () => {
    clearTimeout(silence);
    silence = setTimeout(later, SILENT);
  };

  const open = () => {
    close();
    if (over || document.hidden) return;
    if (main.dataset.every) beat = setInterval(async () => ((await refresh()) ? isLive() : isNotLive()), 1000 * main.dataset.every);
    if (!main.dataset.stream) {
      isLive();
      return;
    }
    source = new EventSource(main.dataset.stream);
    hear();
    source.addEventListener("alive", () => {
      isLive();
      hear();
    });
    source.addEventListener("changed", async () => {
      hear();
      if (!(await refresh())) later();
    });
    source.addEventListener("ended", leave);
    source.onerror = later;
  };

  /* A hidden tab holds no stream: browsers open few connections to one server (HTTP/1.1). */
  document.addEventListener("visibilitychange", async () => {
    if (document.hidden) close();
    else if (await refresh()) open();
    else later();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", async (event) => {
    if (!event.persisted) return;
    if (await refresh()) open();
    else later();
  });
  open();
})();
