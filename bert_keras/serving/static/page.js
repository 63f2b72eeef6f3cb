// The form: choose a model, query it, show its answer.

import { hintOf, viewOf } from "./answers.js";
import { exampleOf, fieldsOf, instancesOf, takesTexts } from "./fields.js";

const byId = (id) => document.getElementById(id);
const state = { models: [], key: "", asking: new AbortController() };

// Returns the JSON of the server; an error has the server's message.
async function send(path, options = {}) {
  const headers = state.key ? { authorization: `Bearer ${state.key}` } : {};
  let reply;
  try {
    reply = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  const text = await reply.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error(`The server answered ${reply.status} without JSON.`);
  }
  if (reply.status === 401) askForKey();
  if (!reply.ok) throw new Error(body.error ?? `The server answered ${reply.status}.`);
  return body;
}

function clear() {
  state.asking.abort();
  byId("answer").removeAttribute("aria-busy");
  for (const id of ["error", "headline", "view"]) byId(id).replaceChildren();
  byId("raw").hidden = true;
  byId("hint").hidden = false;
}

function fail(error) {
  clear();
  byId("hint").hidden = true;
  byId("error").textContent = error.message;
}

function askForKey() {
  byId("key-form").hidden = false;
  byId("links").hidden = true; // links cannot send a key
  byId("key").focus();
}

async function loadModels() {
  clear();
  try {
    state.models = (await send("v1/models")).models;
  } catch (error) {
    fail(error);
    return;
  }
  const names = state.models.map(({ name, task }) => `${name} (${task})`);
  fill(byId("model"), state.models.map(({ name }) => name), names);
  byId("form").hidden = false;
  chooseModel();
}

function fill(select, values, labels) {
  select.replaceChildren(...values.map((value, at) => new Option(labels[at], value)));
}

function current() {
  const model = state.models.find(({ name }) => name === byId("model").value);
  const signature = model.signatures[byId("signature").value];
  return { model, signature };
}

function chooseModel() {
  const { model } = current();
  const names = Object.keys(model.signatures).filter(
    (name) => takesTexts(model.signatures[name]),
  );
  const shown = names.map(
    (name) => model.signatures[name].inputs.map((each) => each.name).join(", "),
  );
  const labels = shown.map((inputs, at) => (
    shown.indexOf(inputs) === shown.lastIndexOf(inputs) ? inputs : `${inputs} (${names[at]})`
  ));
  fill(byId("signature"), names, labels);
  if (names.includes("search")) byId("signature").value = "search";
  byId("signatures").hidden = names.length < 2;
  byId("about").textContent = `${model.task}, version ${model.version}`;
  chooseSignature();
}

function chooseSignature() {
  clear();
  const { model, signature } = current();
  const before = texts();
  byId("fields").replaceChildren();
  for (const id of ["ask", "example"]) byId(id).hidden = !signature;
  byId("mask").hidden = !signature || model.task !== "masked-lm";
  if (!signature) {
    fail(new Error("This model has no signature that takes text."));
    return;
  }
  byId("hint").textContent = hintOf(model);
  for (const field of fieldsOf(model, signature)) {
    const label = document.createElement("label");
    const box = document.createElement(field.rows ? "textarea" : "input");
    label.textContent = field.label;
    box.id = label.htmlFor = `field-${field.id}`;
    box.name = field.id;
    box.dir = "auto";
    box.required = true;
    box.autocomplete = "off";
    if (field.rows) box.rows = field.rows;
    box.value = before[field.id] ?? "";
    byId("fields").append(label, box);
  }
}

// Returns the texts of the fields by name.
function texts() {
  const boxes = byId("fields").querySelectorAll("input, textarea");
  return Object.fromEntries([...boxes].map((box) => [box.name, box.value]));
}

function showExample() {
  const { model, signature } = current();
  const fields = fieldsOf(model, signature);
  exampleOf(model, fields).forEach((text, at) => {
    byId(`field-${fields[at].id}`).value = text;
  });
  byId("form").requestSubmit();
}

function insertMask() {
  const box = byId("fields").querySelector("textarea");
  box.setRangeText("[MASK]", box.selectionStart, box.selectionEnd, "end");
  box.focus();
}

function predict(model, request, signal) {
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  return send(path, { method: "POST", body: JSON.stringify(request), signal });
}

// Returns the predictions of a signature for rows of texts.
async function answersTo(model, signature, rows, signal) {
  const name = Object.keys(model.signatures).find(
    (each) => model.signatures[each] === signature,
  );
  const instances = rows.map((row) => Object.fromEntries(
    signature.inputs.map((input, at) => [input.name, row[at]]),
  ));
  return (await predict(model, { signature_name: name, instances }, signal)).predictions;
}

async function ask() {
  clear();
  const { model, signature } = current();
  const given = texts();
  const instances = instancesOf(model, signature, fieldsOf(model, signature), given);
  const request = { signature_name: byId("signature").value, instances };
  const asking = state.asking = new AbortController();
  byId("answer").setAttribute("aria-busy", "true");
  byId("hint").hidden = true;
  try {
    const body = await predict(model, request, asking.signal);
    const again = (other, rows) => answersTo(model, other, rows, asking.signal);
    const view = viewOf(model, signature, instances, body.predictions, again);
    show(view);
    byId("request").textContent = JSON.stringify(request, null, 2);
    byId("reply").textContent = JSON.stringify(body, null, 2);
    byId("raw").hidden = false;
    await view.words?.();
  } catch (error) {
    if (asking.signal.aborted) return; // another request has replaced this one
    fail(error);
  }
  byId("answer").removeAttribute("aria-busy");
}

function show({ headline, nodes }) {
  byId("hint").hidden = true;
  byId("headline").textContent = headline;
  byId("view").replaceChildren(...nodes);
  // On a phone the answer is below the form.
  if (byId("answer").getBoundingClientRect().top > innerHeight - 100) {
    byId("headline").scrollIntoView({ block: "center" });
  }
}

function on(id, event, action) {
  byId(id).addEventListener(event, (happened) => {
    if (event === "submit") happened.preventDefault();
    action(happened);
  });
}

on("key-form", "submit", () => {
  const key = byId("key").value.trim();
  if (!/^[!-~]+$/.test(key)) {
    fail(new Error("A key has only ASCII characters, without spaces."));
    return;
  }
  state.key = key;
  loadModels();
});
on("model", "change", chooseModel);
on("signature", "change", chooseSignature);
on("form", "submit", ask);
on("example", "click", showExample);
on("mask", "click", insertMask);
on("form", "keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault(); // Enter in a line would submit a second time
    byId("form").requestSubmit();
  }
});
loadModels();
