// What is shown, and what was chosen. Parts register with `follow` and are told of each change.

const page = JSON.parse(byId("document").textContent);

const state = {
  sentence: 0, // which
  threshold: page.chosen, // its number in the list
  token: { stack: "encoder", place: 0 }, // looked at
};
const followers = [];

function follow(update) {
  followers.push(update);
}

// An element that `show` fills, now and after each change.
function followed(show) {
  const body = make("div", {});
  const update = () => show(body);
  follow(update);
  update();
  return body;
}

function change(what) {
  Object.assign(state, what);
  for (const update of followers) update();
}

const LAYERS = {
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward",
};

function sentence() {
  return page.sentences[state.sentence];
}

// What the model made of the sentence; undefined as long as it has not been asked.
function answer(threshold = state.threshold) {
  return sentence()?.answers[threshold];
}

function nothingYet() {
  return make("p", { class: "note", text: "Nothing has been asked yet." });
}

// The words beside a map of a depth loop: what its tokens read, and where there is a difference
// what they write.
function readsOf(stack) {
  // An encoder without steps, as recurrent models have, read the sentence.
  return answer().stacks[stack]?.reads ?? sentence().words;
}

function writesOf(stack) {
  return stack === "decoder" ? answer().words.slice(0, readsOf(stack).length) : readsOf(stack);
}

// Attention weights of a layer, a function of (step, head, query, key); null: not computed. The
// bytes hold step by step, head by head, the rows of the computed tokens.
function attention(stack, layer) {
  const { computed, attention: layers } = answer().stacks[stack];
  const { kept, num_keys: keys, weights } = layers[layer];
  const bytes = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
  const steps = [];
  let start = 0;
  for (const row of computed) {
    let active = 0;
    const places = [...row].map((one) => (one === "1" ? active++ : null));
    steps.push({ start, active, places });
    start += kept * active * keys;
  }
  return (step, head, query, key) => {
    const { start, active, places } = steps[step];
    if (places[query] === null) return null;
    return bytes[start + (head * active + places[query]) * keys + key] / 255;
  };
}

// Share of the choices in this answer that each expert got.
function loadOf(stack, layer, experts) {
  const counts = new Array(experts).fill(0);
  for (const step of answer().stacks[stack].experts[layer].indices) {
    // A token with fewer experts than others has the number after the last one in their place.
    for (const own of step) for (const expert of own ?? []) if (expert < experts) counts[expert]++;
  }
  const total = counts.reduce((sum, one) => sum + one, 0);
  return counts.map((count) => count / Math.max(1, total));
}
