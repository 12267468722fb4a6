// Sentences that are typed: asked at the chosen threshold first, then at the others.

function typingForm() {
  const { characters } = page.live;
  const area = make("textarea", { id: "text", rows: 2, maxlength: characters, autocomplete: "off", spellcheck: "false" });
  const status = make("p", { class: "note", role: "status", id: "status" });
  // Apart from the status, which earlier sentences go on to write while they are asked about.
  const trouble = make("p", { class: "note", role: "alert" });
  const form = make(
    "form",
    { class: "typing" },
    make("label", { for: "text", text: "A sentence" }),
    area,
    make("div", {}, make("button", { type: "submit", text: "Ask the model" }), status),
    trouble,
  );
  const submit = (event) => {
    event?.preventDefault();
    const text = area.value.trim();
    if (!text) return;
    trouble.replaceChildren();
    page.sentences.push({ text, words: [], reference: null, answers: [] });
    change({ sentence: page.sentences.length - 1, token: { stack: "encoder", place: 0 } });
  };
  form.addEventListener("submit", submit);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  });
  follow(() => {
    const one = sentence();
    if (one && !one.asking && !one.problem && missing(one).length) askAll(one, status, trouble);
  });
  return form;
}

// The numbers of the thresholds that a sentence has not been asked at.
function missing(asked) {
  return page.thresholds.map((_, number) => number).filter((number) => !asked.answers[number]);
}

// Asks for what is missing, as long as the sentence is on the page; first at the threshold that the
// slider stands at by then.
async function askAll(asked, status, trouble) {
  asked.asking = true;
  const shown = () => asked === sentence();
  try {
    for (let left = missing(asked); left.length && shown(); left = missing(asked)) {
      const next = left.includes(state.threshold) ? state.threshold : left[left.length - 1];
      const threshold = page.thresholds[next];
      status.textContent = threshold === null ? "Asking …" : `Asking at threshold ${threshold} …`;
      const found = await ask(asked.text, threshold);
      asked.words = found.words;
      asked.answers[next] = found.answer;
      if (shown()) change({});
    }
    if (shown()) status.textContent = "";
  } catch (problem) {
    asked.problem = problem.message;
    if (shown()) status.textContent = "";
    trouble.replaceChildren(make("span", { class: "problem", text: problem.message }));
    if (!asked.answers.some(Boolean)) {
      page.sentences.splice(page.sentences.indexOf(asked), 1);
      change({ sentence: Math.max(0, page.sentences.length - 1) });
    }
  } finally {
    asked.asking = false;
  }
}

async function ask(text, threshold) {
  let reply;
  try {
    reply = await fetch("/ask", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text, threshold }),
    });
  } catch {
    throw new Error("sut-report no longer answers: is it still running?");
  }
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}
