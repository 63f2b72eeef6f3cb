// Answers for people: a headline and the nodes below it.
//
// A view is chosen by the names of the outputs, as `row_of` of answer_rows.py does.
// Text from the server becomes text nodes, never HTML.

import { findsTexts, givesVectors, scoresPairs } from "./fields.js";

const MOST_BARS = 20;
const EXPLAINED = 3; // texts whose words are marked
const MOST_PARTS = 40; // of a text, each left out once
const LEAST_SHARE = 0.25; // of the largest loss, for a word that is marked
const KINDS = 6; // colors of marks in page.css
const scores = new Map(); // numbers answered so far, by model

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function node(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

// Items have `name`, `share`, and may have `value` (the share as text) and `chosen`.
function bars(items, title) {
  const list = node("ul", "bars");
  for (const { name, share, value, chosen } of items.slice(0, MOST_BARS)) {
    const fill = node("span", "fill");
    fill.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    const bar = node("span", "bar", fill);
    bar.ariaHidden = "true";
    const named = node("span", "name", name);
    named.dir = "auto";
    if (chosen) named.append(node("span", "answer", " (answer)"));
    const shown = node("span", "value", value ?? percent(share));
    list.append(node("li", chosen ? "chosen" : "", named, shown, bar));
  }
  const nodes = title ? [node("h2", "", title), list] : [list];
  const more = items.length - MOST_BARS;
  if (more > 0) nodes.push(node("p", "note", `and ${more} more, see JSON`));
  return nodes;
}

const byShare = (items) => [...items].sort((a, b) => b.share - a.share);

const zip = (...columns) => columns[0].map((_, at) => columns.map((each) => each[at]));

// Offsets count Unicode characters; a string of JavaScript counts UTF-16 units.
function marked(text, spans) {
  const characters = [...text];
  const cut = (start, end) => characters.slice(start, end).join("");
  const passage = node("p", "passage");
  passage.dir = "auto";
  let at = 0;
  for (const { start, end, type, kind } of spans) {
    if (start < at || end <= start) continue;
    const mark = node("mark", `kind-${kind ?? 0}`, cut(start, end));
    if (type) mark.append(node("span", "type", ` ${type}`));
    passage.append(cut(at, start), mark);
    at = end;
  }
  passage.append(cut(at));
  return passage;
}

function withheld(score) {
  return `Withheld: its probability, ${percent(score)}, is too low for this model`;
}

function classView(row) {
  const items = zip(row.classes, row.probabilities).map(([name, share]) => (
    { name, share, chosen: name === row.label }
  ));
  const headline = row.abstained ? withheld(row.score) : row.label;
  return { headline, nodes: bars(byShare(items)) };
}

function labelsView(row) {
  const items = zip(row.classes, row.probabilities, row.labels).map(
    ([name, share, label]) => ({ name, share, chosen: Boolean(label) }),
  );
  const headline = row.labels.filter(Boolean).join(", ") || "None of the labels";
  return { headline, nodes: bars(byShare(items)) };
}

function choiceView(row, { choices }) {
  const items = choices.map((name, at) => (
    { name, share: row.probabilities[at], chosen: !row.abstained && at === row.index }
  ));
  const headline = row.abstained ? withheld(row.score) : row.choice;
  return { headline, nodes: bars(items) };
}

function nextView({ is_next: isNext, probability, abstained }) {
  const follows = "The second text follows the first";
  const not = "The second text does not follow the first";
  const items = [
    { name: "follows", share: probability, chosen: !abstained && isNext },
    { name: "does not follow", share: 1 - probability, chosen: !abstained && !isNext },
  ];
  const score = Math.max(probability, 1 - probability);
  const headline = abstained ? withheld(score) : isNext ? follows : not;
  return { headline, nodes: bars(items) };
}

function masksView(row) {
  const masks = zip(row.tokens, row.probabilities).filter(([words]) => words[0]);
  if (!masks.length) return { headline: "The text has no [MASK]", nodes: [] };
  const nodes = masks.flatMap(([words, shares], at) => bars(
    zip(words, shares).map(([name, share]) => ({ name, share })),
    masks.length > 1 ? `[MASK] ${at + 1}` : "",
  ));
  return { headline: row.sequences[0], nodes };
}

function entitiesView(row, given) {
  const [text] = Object.values(given);
  const found = zip(row.entities, row.types, row.starts, row.ends, row.scores)
    .filter(([name]) => name)
    .map(([name, type, start, end, share]) => ({ name, type, start, end, share }));
  const types = [...new Set(found.map(({ type }) => type))].sort();
  for (const each of found) each.kind = types.indexOf(each.type) % KINDS;
  const items = found.map((each) => ({ ...each, name: `${each.name} (${each.type})` }));
  const headline = { 0: "No entities", 1: "1 entity" }[found.length]
    ?? `${found.length} entities`;
  return { headline, nodes: [marked(text, found), ...bars(items)] };
}

function tagsView(row, { words }) {
  const list = node("ul", "tags");
  const tags = row.tags.slice(0, words.length);
  for (const [word, tag, score] of zip(words, tags, row.scores)) {
    const shown = node("span", "word", word);
    shown.dir = "auto";
    const share = node("span", "share", percent(score));
    list.append(node("li", tag === "O" ? "plain" : "", shown,
      node("span", "tag", tag), share));
  }
  const named = tags.filter((tag) => tag !== "O").length;
  const headline = `${named} of ${words.length} words have a tag other than O`;
  return { headline, nodes: [list] };
}

function spanView(row, { context }) {
  const best = zip(row.n_best_answers, row.n_best_scores)
    .filter(([name]) => name)
    .map(([name, share], at) => ({ name, share, chosen: !at && Boolean(row.answer) }));
  const none = row.abstained ? withheld(row.score) : "No answer in this context";
  const nodes = [marked(context, [{ start: row.start, end: row.end }])];
  return { headline: row.answer || none, nodes: [...nodes, ...bars(best, "Best answers")] };
}

function summaryView(row, given) {
  const [text] = Object.values(given);
  const found = zip(row.sentences, row.starts, row.ends, row.scores)
    .filter(([name]) => name)
    .map(([name, start, end, share]) => ({ name, start, end, share }));
  const nodes = [marked(text, found), ...bars(found, "Sentences")];
  return { headline: row.summary || "No sentence", nodes };
}

function writtenView(row) {
  const items = zip(row.texts, row.scores)
    .map(([name, score], at) => ({
      name: name || "(empty)", share: Math.exp(score), value: score.toFixed(2), chosen: !at,
    }));
  const nodes = items.length > 1 ? bars(items, "Hypotheses") : [];
  return { headline: row.text || "(empty)", nodes };
}

// The smallest of 1, 2, 5, 10, 20, 50 … that is not below a number.
function roundedUp(number) {
  if (!number) return 0;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((step) => step * power).find((end) => end >= number);
}

function scoreView(row, given, model) {
  const before = scores.get(model.name) ?? [];
  const all = [...before.slice(-MOST_BARS), row.score];
  scores.set(model.name, all);
  const low = -roundedUp(Math.max(0, ...all.map((score) => -score)));
  const high = roundedUp(Math.max(0, ...all)) || (low ? 0 : 1);
  const axis = node("div", "axis");
  axis.ariaHidden = "true";
  for (const score of all) {
    const dot = node("span", score === row.score ? "dot now" : "dot");
    dot.style.left = `${(100 * (score - low)) / (high - low)}%`;
    axis.append(dot);
  }
  const plain = (number) => String(Number(number.toPrecision(3)));
  const ends = node("p", "ends", node("span", "", plain(low)), node("span", "", plain(high)));
  let note = "In the units of the training data.";
  if (before.length) note += " Pale dots are your earlier questions.";
  const headline = String(Number(row.score.toPrecision(4)));
  return { headline, nodes: [axis, ends, node("p", "note", note)] };
}

const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
const cosine = (a, b) => dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);

// Texts by their scores, best first. `scoresOf` gives the scores of other texts, with
// which `words` marks the words of the best ones.
function rankedView(items, title, scoresOf) {
  const ranked = [...items].sort((a, b) => b.score - a.score);
  const list = node("ol", "ranked");
  for (const { text, score, id } of ranked.slice(0, MOST_BARS)) {
    const value = node("span", "value", score.toFixed(3));
    const shown = node("span", "name", text);
    shown.dir = "auto";
    const named = id ? [node("span", "note", id)] : [];
    list.append(node("li", "", value, shown, ...named));
  }
  const nodes = [node("h2", "", title), list];
  const more = ranked.length - MOST_BARS;
  if (more > 0) nodes.push(node("p", "note", `and ${more} more, see JSON`));
  if (!scoresOf) return { headline: ranked[0].text, nodes };
  const words = async () => {
    const names = list.querySelectorAll(".name");
    const best = ranked.slice(0, EXPLAINED);
    const note = await markWords(best, names, scoresOf).catch((error) => {
      if (error.name === "AbortError") throw error; // the answer itself is right
      return `The words that raise the scores are unknown: ${error.message}`;
    });
    list.after(node("p", "note", note));
  };
  return { headline: ranked[0].text, nodes, words };
}

// Marks what a text would score less without, as `explain --method occlusion` does.
async function markWords(ranked, shown, scoresOf) {
  const parts = ranked.map(({ text }) => partsOf(text));
  const without = parts.flatMap((each) => each.map((_, at) => each.toSpliced(at, 1).join("")));
  if (!without.length) return "";
  // Whole texts again: an index of bits, or of int8, has scores of another precision.
  const whole = ranked.map(({ text }) => text);
  const left = await scoresOf([...whole, ...without]);
  let place = whole.length;
  for (const [at, each] of parts.entries()) {
    const losses = each.map(() => left[at] - left[place++]);
    const most = Math.max(...losses);
    if (most <= 0) continue;
    shown[at].replaceChildren(...each.map((part, n) => {
      const share = losses[n] / most;
      if (share < LEAST_SHARE) return part;
      const mark = node("mark", share < 2 / 3 ? "weak" : "", part.trimEnd());
      return node("span", "", mark, part.slice(part.trimEnd().length));
    }));
  }
  return "The marked words raise the score of a text.";
}

// Returns words, each with the space after it; of long texts, runs of words.
function partsOf(text) {
  const words = text.match(/\s*\S+\s*/gu) ?? [];
  const run = Math.ceil(words.length / MOST_PARTS);
  const starts = [...words.keys()].filter((at) => at % run === 0);
  const parts = starts.map((at) => words.slice(at, at + run).join(""));
  return parts.length > 1 ? parts : []; // no text is left without its only word
}

function nearestView(vectors, texts, signature, ask) {
  const [query, ...others] = vectors;
  const items = others.map((vector, at) => (
    { text: texts[at + 1], score: cosine(query, vector) }
  ));
  const scoresOf = async (given) => {
    const found = await ask(signature, given.map((text) => [text]));
    return found.map((vector) => cosine(query, vector));
  };
  return rankedView(items, "Cosine to the query", scoresOf);
}

function pairsView(predictions, instances, signature, ask) {
  const [first, second] = signature.inputs.map(({ name }) => name);
  const query = instances[0][first];
  const scores = (rows) => rows.map((row) => (typeof row === "number" ? row : row.score));
  const items = zip(instances.map((each) => each[second]), scores(predictions))
    .map(([text, score]) => ({ text, score }));
  const scoresOf = async (given) => scores(
    await ask(signature, given.map((text) => [query, text])),
  );
  return rankedView(items, "Score for the query", scoresOf);
}

const RANKINGS = {
  dense: "vectors", sparse: "sparse vectors", hybrid: "vectors and words",
};

// A model that also gives vectors tells the words, where these alone rank the texts; an
// export with an index does not.
function foundView(row, given, model, signature, ask) {
  const items = zip(row.texts, row.scores, row.ids)
    .filter(([text, , id]) => text || id)
    .map(([text, score, id]) => ({ text, score, id }));
  if (!items.length) return { headline: "No texts", nodes: [] };
  const named = ["document", "serving_default"].map((name) => model.signatures[name]);
  const documents = named.find((each) => each && givesVectors(each));
  const queries = model.signatures.query ?? documents;
  const [query] = Object.values(given);
  const { ranking, rerank } = signature.search;
  const scoresOf = documents && ranking === "dense" && !rerank && (async (texts) => {
    const [vector] = await ask(queries, [[query]]);
    const found = await ask(documents, texts.map((text) => [text]));
    return found.map((each) => cosine(vector, each));
  });
  const title = `Texts of the index by ${RANKINGS[ranking]}`;
  return rankedView(items, rerank ? `${title}, reranked` : title, scoresOf);
}

function jsonView(row) {
  const shown = node("pre", "", JSON.stringify(row, null, 2));
  shown.tabIndex = 0;
  return { headline: "Answer", nodes: [shown] };
}

// The outputs by which answers are recognized; inputs that a view repeats.
const VIEWS = [
  [["label", "probabilities", "classes"], [], classView],
  [["labels", "probabilities", "classes"], [], labelsView],
  [["choice", "index", "probabilities"], ["choices"], choiceView],
  [["is_next", "probability"], [], nextView],
  [["tokens", "probabilities", "sequences"], [], masksView],
  [["entities", "types", "starts", "ends", "scores"], [], entitiesView],
  [["tags", "scores"], ["words"], tagsView],
  [["answer", "n_best_answers", "n_best_scores"], ["context"], spanView],
  [["summary", "sentences", "starts", "ends", "scores"], [], summaryView],
  [["text", "texts", "scores"], [], writtenView],
];

// What the answer area will show, by task.
const HINTS = {
  "classification": "the class, and the probability of each class",
  "multi-label": "the labels that apply, and the probability of each label",
  "regression": "a number on its scale",
  "next-sentence": "whether the second text follows the first",
  "embedding": "the texts nearest to the query, and the words that counted",
  "reranking": "the texts in the order of their scores, and the words that counted",
  "search": "the best texts of the index for the query",
  "masked-lm": "the most probable words for each [MASK]",
  "multiple-choice": "the best choice, and the probability of each choice",
  "token-classification": "the names that were found, marked in the text",
  "feature-tagging": "the names that were found, marked in the text",
  "question-answering": "the answer, marked in the context",
  "summarization": "the most important sentences, marked in the document",
  "abstractive-summarization": "a summary",
  "translation": "a translation",
};

export function hintOf(model) {
  const what = Object.hasOwn(HINTS, model.task) ? HINTS[model.task] : "what the model says";
  return `The answer will appear here: ${what}.`;
}

// Returns `headline` and `nodes` for the answers to the sent rows, and perhaps `words`,
// which asks again to mark the words that counted. `ask` sends rows to a signature.
export function viewOf(model, signature, instances, predictions, ask) {
  const names = signature.outputs.map(({ name }) => name);
  if (givesVectors(signature) && isVectors(predictions)) {
    const [input] = signature.inputs;
    const texts = instances.map((each) => each[input.name]);
    return nearestView(predictions, texts, signature, ask);
  }
  if (scoresPairs(model, signature)) {
    return pairsView(predictions, instances, signature, ask);
  }
  if (findsTexts(signature)) {
    return foundView(predictions[0], instances[0], model, signature, ask);
  }
  // The API omits the name of a single output.
  const row = names.length === 1 ? { [names[0]]: predictions[0] } : predictions[0];
  const [given] = instances;
  const has = (found, wanted) => wanted.every((name) => Object.hasOwn(found, name));
  const view = model.task === "regression" ? scoreView
    : VIEWS.find(([outputs, inputs]) => has(row, outputs) && has(given, inputs))?.[2];
  try {
    return (view ?? jsonView)(row, given, model);
  } catch {
    return jsonView(row); // from a custom task with output names like ours
  }
}

function isVectors(predictions) {
  return predictions.length > 1 && predictions.every((each) => Array.isArray(each));
}
