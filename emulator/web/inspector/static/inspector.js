// The inspector's only script. Without it pages can be read, but nothing can be changed and nothing is live.
// It never turns text of requests into markup: fragments come from the server, escaped.
"use strict";

const notice = document.getElementById("notice");

function notify(text) {
  notice.textContent = text;
  clearTimeout(notify.timer);
  notify.timer = setTimeout(() => { notice.textContent = ""; }, 6000);
}

// Times are in UTC without this script, and with it in the browser's zone.
const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;
function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const local = new Date(at.getTime() - 60000 * at.getTimezoneOffset());
    const zone = time.textContent.endsWith("UTC") ? ` ${zoneName}` : ""; // in a table its head has it
    time.textContent = local.toISOString().slice(0, 19).replace("T", " ") + zone;
    time.title = time.dateTime;
  }
  for (const zone of root.querySelectorAll("[data-zone]")) zone.textContent = `(${zoneName})`;
}
showLocalTimes(document);

async function post(url, body) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) {
    let message = text;
    try { message = JSON.parse(text).error.message; } catch { /* not JSON: the text is the message */ }
    throw new Error(message.slice(0, 500));
  }
  return { kind: response.headers.get("content-type") || "", text };
}

// A button with data-post sends {} to that address, then the page reloads.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button || (button.dataset.confirm && !confirm(button.dataset.confirm))) return;
  try {
    await post(button.dataset.post, {});
    location.reload();
  } catch (error) { notify(error.message); }
});

// A form with data-json sends its fields as JSON. The answer is a fragment for data-into, or the page reloads.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.json) return;
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(form));
  const address = event.submitter?.dataset.to || form.dataset.json;
  form.setAttribute("aria-busy", "true");
  try {
    const answer = await post(address, fields);
    const into = form.dataset.into && document.getElementById(form.dataset.into);
    if (into) {
      into.innerHTML = answer.text; // escaped by the server; the content policy runs no script in it
      showLocalTimes(into);
      into.scrollIntoView({ block: "nearest" });
    } else {
      location.reload();
    }
  } catch (error) { notify(error.message); } finally { form.removeAttribute("aria-busy"); }
});

// Pointing at a call highlights its line.
function light(event, on) {
  const call = event.target.closest?.("[data-lights]");
  if (!call) return;
  document.querySelectorAll(`[data-line="${CSS.escape(call.dataset.lights)}"]`)
    .forEach((line) => line.classList.toggle("lit", on));
}
for (const [name, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(name, (event) => light(event, on));
}

// The slider over a program's turns replaces this page's content by that of another turn. The slider keeps the
// focus, so that the arrow keys continue to work. Without this script there are links.
function slide() {
  const slider = document.getElementById("step");
  if (slider) slider.hidden = false;
  return slider;
}
async function step(slider) {
  const ids = slider.dataset.steps.split(" ");
  const text = `${slider.value} of ${ids.length}`;
  slider.setAttribute("aria-valuetext", text);
  document.querySelector("output[for=step]").textContent = text;
  const address = `/inspector/requests/${ids[slider.value - 1]}/${slider.dataset.view}`;
  const current = step.current = {};
  const response = await fetch(address);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (step.current !== current) return; // the slider has moved again
  if (!response.ok) { notify("That turn is not stored any more."); return; }
  showLocalTimes(page);
  document.getElementById("main").replaceWith(page.getElementById("main")); // escaped by the server
  document.title = page.title;
  history.replaceState(null, "", address);
  slide()?.focus();
}
slide();
document.addEventListener("input", (event) => {
  if (event.target.id === "step") step(event.target).catch((error) => notify(error.message));
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  notify("Copied.");
});

// A theme other than the system's.
const storedTheme = localStorage.getItem("theme");
if (storedTheme) document.documentElement.dataset.theme = storedTheme;
document.querySelector("[data-theme-switch]")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

// Keys: / focuses the search, j and k move through the rows, ? shows them.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const rows = [...document.querySelectorAll(".requests tbody a")];
  const at = rows.indexOf(document.activeElement);
  if (event.key === "/" && document.getElementById("q")) document.getElementById("q").focus();
  else if (event.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (event.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
  else if (event.key === "?") notify("Keys: / search, j and k next and previous request, ? this list.");
  else return;
  event.preventDefault();
});

// The rows and the filters are fetched every two seconds, and only while the page is visible. Filters stay as
// they are while somebody chooses in one.
const live = document.querySelector("[data-live]");
const isUnchanged = (select) =>
  select !== document.activeElement && select.value === (select.querySelector("[selected]")?.value ?? "");
async function refresh() {
  if (document.hidden || !live.checked) return;
  const response = await fetch(location.href);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!response.ok) return;
  showLocalTimes(page);
  for (const id of ["choices", "rows"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (old.innerHTML === now.innerHTML || ![...old.querySelectorAll("select")].every(isUnchanged)) continue;
    const focused = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
    old.innerHTML = now.innerHTML; // escaped by the server
    if (focused) old.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}
if (live) {
  setInterval(() => refresh().catch(() => {}), 2000); // the proxy may be restarting
  document.addEventListener("visibilitychange", refresh);
  live.addEventListener("change", refresh);
}
