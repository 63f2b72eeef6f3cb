// The fields of each input, how their text becomes a value, and examples by task.

const lines = (text) => text.split("\n").filter((line) => line.trim());

// A field without `read` returns its text unchanged.
const FIELDS = {
  text: { label: "Text", rows: 6 },
  document: { label: "Document", rows: 10 },
  text_a: { label: "First text", rows: 3 },
  text_b: { label: "Second text", rows: 3 },
  question: { label: "Question" },
  context: { label: "Context", rows: 8 },
  choices: { label: "Choices, one per line", rows: 4, read: lines },
  classes: { label: "Classes, one per line", rows: 4, read: lines },
  words: {
    label: "Words, separated by spaces or lines",
    rows: 4,
    read: (text) => text.split(/\s+/).filter(Boolean),
  },
};

// Vectors are shown by their similarity, and pairs by their scores: a query and texts.
const RANKED = [
  { id: "query", label: "Query" },
  { id: "texts", label: "Texts, one per line", rows: 8, read: lines },
];
const QUERY = [{ id: "query", label: "Query" }];

const CITY =
  "Lisbon is the capital of Portugal. It lies on seven hills at the mouth of the " +
  "Tagus. In 1755 an earthquake destroyed most of the city. It was rebuilt under the " +
  "Marquis of Pombal, with wide streets and houses that withstand shocks. Today about " +
  "half a million people live there.";
const NAMES = "Ada Lovelace met Charles Babbage in London and wrote to him for years.";
const PAIR = {
  text_a: "A man is playing a guitar on the street.",
  text_b: "Someone makes music outdoors.",
};
const REVIEW =
  "The soup was cold and far too expensive, but our waiter could not have been kinder.";
const MAIL = "Congratulations! You have won a prize. Claim it today with your card number.";

const INFERENCE = {
  text_a: "A man is playing a guitar on the street.",
  text_b: "Nobody is making music.",
};
const ORDER = "I ordered two lamps last week, but only one of them has arrived.";
const SOURCE = "Two children are playing in the snow.";

// By classes of one text; the first pattern that a class matches decides.
const BY_CLASS = [
  [/^(spam|ham|not[_ -]?spam|phishing|promotion)$/i, MAIL],
  [/^(pos|neg|positive|negative|neutral|good|bad|[1-5] ?stars?)$/i, REVIEW],
  [/card|order|refund|account|payment|deliver|support|transfer/i, ORDER],
];

const RANKED_TEXTS = {
  query: "How do I get my money back?",
  texts:
    "Refunds are paid within a week.\nOur shop is open on Sundays.\n" +
    "You can return shoes that do not fit.\nThe parcel leaves us tomorrow.",
};

// By task; an input name that is not listed uses `text`.
const EXAMPLES = {
  "classification": PAIR,
  "multi-label": PAIR,
  "regression": { text: REVIEW, ...PAIR },
  "next-sentence": {
    text_a: "She opened the window.",
    text_b: "Fresh air came into the room.",
  },
  "embedding": RANKED_TEXTS,
  "reranking": RANKED_TEXTS,
  "search": RANKED_TEXTS,
  "masked-lm": { text: "Paris is the [MASK] of France, and Rome is in [MASK]." },
  "multiple-choice": {
    context: "It rained all night and the road was under water.",
    choices: "We took the train.\nThe soup was cold.\nHe painted the fence.",
  },
  "token-classification": { text: NAMES, words: NAMES.replace(/\./, " .") },
  "feature-tagging": { text: NAMES, words: NAMES.replace(/\./, " .") },
  "question-answering": { question: "When was the earthquake?", context: CITY },
  "summarization": { document: CITY },
  "abstractive-summarization": { text: CITY },
  "translation": { text: SOURCE },
};

// Returns a text for a model of classes: one that it may know, or one about a class.
function textFor(classes) {
  const found = BY_CLASS.find(([pattern]) => classes.some((name) => pattern.test(name)));
  if (found) return found[1];
  const named = classes.find((name) => /\p{L}{3}/u.test(name) && !/^label_?\d+$/i.test(name));
  return named ? `This is about ${named.replace(/[_-]+/g, " ")}.` : REVIEW;
}

const answers = (signature, ...names) => names.every(
  (name) => signature.outputs.some((output) => output.name === name),
);

const takesStrings = (signature, count) => signature.inputs.length === count
  && signature.inputs.every(({ shape }) => shape.length === 1);

export function givesVectors(signature) {
  return signature.outputs.length === 1 && answers(signature, "embedding")
    && takesStrings(signature, 1);
}

export function scoresPairs(model, signature) {
  return model.task === "reranking" && answers(signature, "score")
    && takesStrings(signature, 2);
}

export function findsTexts(signature) {
  return signature.search && takesStrings(signature, 1);
}

export function takesTexts(signature) {
  return signature.inputs.every((input) => input.dtype === "string"
    && input.shape.length <= 2);
}

export function fieldsOf(model, signature) {
  if (givesVectors(signature) || scoresPairs(model, signature)) return RANKED;
  if (findsTexts(signature)) return QUERY;
  return signature.inputs.map(({ name, shape }) => {
    const found = Object.hasOwn(FIELDS, name) ? FIELDS[name] : { label: name, rows: 4 };
    if (shape.length === 1) return { ...found, id: name, read: undefined };
    const label = found.read ? found.label : `${name}, one per line`;
    return { ...found, id: name, label, read: found.read ?? lines };
  });
}

// Returns a text for each field: the example of the card, or one by task and classes.
export function exampleOf(model, fields) {
  const own = model.example ?? {};
  if (fields.every(({ id }) => own[id])) return fields.map(({ id }) => own[id]);
  const texts = Object.hasOwn(EXAMPLES, model.task) ? EXAMPLES[model.task] : {};
  const pair = model.classes?.some((name) => /entail|contradict/i.test(name))
    ? INFERENCE : {};
  const text = texts.text ?? textFor(model.classes ?? []);
  return fields.map(({ id }) => pair[id] ?? texts[id] ?? text);
}

// Returns the rows to send, for the texts of the fields by id.
export function instancesOf(model, signature, fields, texts) {
  const values = fields.map(({ id, read }) => (read ? read(texts[id]) : texts[id]));
  const [first, second] = signature.inputs.map(({ name }) => name);
  if (givesVectors(signature)) {
    return [values[0], ...values[1]].map((text) => ({ [first]: text }));
  }
  if (scoresPairs(model, signature)) {
    return values[1].map((text) => ({ [first]: values[0], [second]: text }));
  }
  if (findsTexts(signature)) return [{ [first]: values[0] }];
  return [Object.fromEntries(fields.map(({ id }, at) => [id, values[at]]))];
}
