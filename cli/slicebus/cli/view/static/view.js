// Keeps a page up to date: a stream says that something has changed, and the page is read again and compared.
// No text ever becomes markup here: the browser itself parses the page that the view answers with.
"use strict";

const QUIET_MS = 12000; // A stream that says nothing for so long is lost: it speaks every 3 s.
const REST = 6; // The next reading waits for so many times of what the last one took.
const root = document.documentElement;
const isPast = root.dataset.at !== undefined; // Such a page stays as it is: nothing of the present comes into it.

// ---- the theme -------------------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];

function stored(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

function setTheme(theme) {
  if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
  const button = document.getElementById("theme");
  if (button) button.textContent = `Theme: ${theme}`;
}

let theme = THEMES.includes(stored("theme")) ? stored("theme") : "system";
setTheme(theme);

function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try { localStorage.setItem("theme", theme); } catch { /* It holds for this page. */ }
  setTheme(theme);
}

// ---- comparing -------------------------------------------------------------------------------------------------

const KEPT = { DETAILS: ["open"] }; // What the reader has set stays.

function adopt(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) {
    from.replaceWith(document.adoptNode(to));
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.isEqualNode(to) || from.contains(document.activeElement) && from.matches("form")) return;
  const kept = KEPT[from.nodeName] ?? [];
  for (const name of from.getAttributeNames()) {
    if (!to.hasAttribute(name) && !kept.includes(name)) from.removeAttribute(name);
  }
  for (const name of to.getAttributeNames()) {
    if (from.getAttribute(name) !== to.getAttribute(name) && !kept.includes(name)) {
      from.setAttribute(name, to.getAttribute(name));
    }
  }
  const old = [...from.childNodes], young = [...to.childNodes];
  young.forEach((child, at) => {
    if (at < old.length) adopt(old[at], child); else from.append(document.adoptNode(child));
  });
  old.slice(young.length).forEach((child) => child.remove());
}

// ---- reading the page again --------------------------------------------------------------------------------------

let seen = null; // What the stream said last of the state.
let heard = Date.now();
let reading = false, wanted = false, restUntil = 0, lost = "";

function read() {
  if (reading || Date.now() < restUntil) { wanted = true; return; }
  reading = true; wanted = false;
  const began = Date.now(), request = new XMLHttpRequest();
  request.responseType = "document";
  request.onload = () => {
    const main = request.response && request.response.querySelector("main");
    if (main) {
      adopt(document.querySelector("main"), main);
      adopt(document.getElementById("notices"), request.response.getElementById("notices"));
      adopt(document.getElementById("as-of"), request.response.getElementById("as-of"));
      adoptSlider(request.response.getElementById("time"));
    }
  };
  request.onloadend = () => {
    reading = false;
    restUntil = Date.now() + REST * (Date.now() - began);
  };
  request.open("GET", location.href.split("#")[0]);
  request.send();
}

// ---- the stream ----------------------------------------------------------------------------------------------------

let stream = null;

function listen() {
  if (stream || document.hidden || isPast) return;
  stream = new EventSource("/events");
  stream.onmessage = (event) => {
    const told = JSON.parse(event.data), now = JSON.stringify(told);
    heard = Date.now();
    lost = told.lost;
    if (seen !== null && seen !== now) read();
    seen = now;
    show();
  };
}

function pause() {
  if (stream) stream.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (isPast) return;
  if (document.hidden) { pause(); return; }
  heard = Date.now();
  listen();
  read();
});

function show() {
  const status = document.getElementById("stream");
  if (!status || isPast) return;
  const silent = Date.now() - heard, isLost = silent > QUIET_MS || (stream && stream.readyState === EventSource.CLOSED);
  const text = isLost || lost ? "stream lost" : "live", age = document.getElementById("age");
  if (status.textContent !== text) status.textContent = text;
  age.textContent = isLost ? `${Math.round(silent / 1000)} s old` : "";
  status.classList.toggle("bad", isLost || lost !== "");
  if (isLost && stream && stream.readyState === EventSource.CLOSED) { pause(); setTimeout(listen, 3000); }
}

setInterval(() => { if (wanted) read(); show(); prolong(); }, 1000);

// ---- the slider ----------------------------------------------------------------------------------------------------

const REST_MS = 700; // Whoever moves the slider by keys has chosen when it rests.
let chosen = 0;

function showMoment(slider) {
  const text = slider.value === slider.max ? "" : new Date(slider.value * 1000).toISOString().replace(".000Z", "Z");
  document.getElementById("moment").value = text;
  slider.setAttribute("aria-valuetext", text || "now");
}

function openMoment(slider) {
  const address = new URL(location.href);
  if (slider.value === slider.max) address.searchParams.delete("at");
  else address.searchParams.set("at", document.getElementById("moment").value);
  if (address.href === location.href) return;
  if (document.activeElement === slider) {
    try { sessionStorage.setItem("slider", "held"); } catch { /* It is not focused again. */ }
  }
  location.assign(address);
}

function takeSlider(slider) {
  slider.hidden = false;
  slider.setAttribute("aria-valuetext", isPast ? document.getElementById("moment").value : "now");
  slider.addEventListener("input", () => { clearTimeout(chosen); showMoment(slider); });
  slider.addEventListener("change", () => {
    clearTimeout(chosen);
    chosen = setTimeout(() => openMoment(slider), REST_MS);
  });
  prolong();
  try {
    if (sessionStorage.getItem("slider") === "held") slider.focus();
    sessionStorage.removeItem("slider");
  } catch { /* It is not focused again. */ }
}

function adoptSlider(young) { // It is there as soon as the journal has been read.
  const time = document.getElementById("time"), slider = young && young.querySelector("#slider");
  if (!slider || !time || time.querySelector("#slider") || time.contains(document.activeElement)) return;
  time.replaceWith(document.adoptNode(young));
  takeSlider(slider);
}

function prolong() { // The end of the slider is the present.
  const slider = document.getElementById("slider");
  if (!slider || isPast || slider.value !== slider.max) return;
  const first = Number(slider.min), step = Number(slider.step);
  slider.max = first + Math.ceil((Date.now() / 1000 - first) / step) * step;
  slider.value = slider.max;
}

// ---- the keyboard --------------------------------------------------------------------------------------------------

const PLACES = { f: "fleet", j: "jobs", q: "queues", m: "messages" };
let isGoing = false;

function rowLinks() {
  return [...document.querySelectorAll("main [data-row]")].map((row) => row.querySelector("a[href]")).filter(Boolean);
}

function step(by) {
  const links = rowLinks();
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)].focus();
}

function follow(selector) {
  const link = document.querySelector(selector);
  if (link) link.click();
}

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (target.matches("input, select, textarea")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    if (PLACES[event.key]) follow(`nav [data-page=${PLACES[event.key]}]`);
    return;
  }
  switch (event.key) {
    case "g": isGoing = true; setTimeout(() => { isGoing = false; }, 1500); break;
    case "/": {
      const field = document.querySelector("main input");
      if (field) { event.preventDefault(); field.focus(); }
      break;
    }
    case "j": step(1); break;
    case "k": step(-1); break;
    case "]": follow("a[rel=next]"); break;
    case "[": follow("a[rel=prev]"); break;
    case "t": nextTheme(); break;
    case "n": follow("#now"); break;
    case "p": {
      const field = document.querySelector("#slider, #moment");
      if (field) { event.preventDefault(); field.focus(); }
      break;
    }
    case "?": follow("#keys"); break;
  }
});

document.addEventListener("DOMContentLoaded", () => {
  setTheme(theme);
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", nextTheme);
  const slider = document.getElementById("slider");
  if (slider) takeSlider(slider);
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.matches("details")) target.open = true;
  listen();
  show();
});
window.addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.matches("details")) { target.open = true; target.scrollIntoView(); }
});
