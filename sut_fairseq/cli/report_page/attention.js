// Attention by step and head, and copy gates.

// Every attention layer of the model, as [stack, layer].
function attentionLayers() {
  return Object.entries(answer().stacks).flatMap(([stack, { attention }]) =>
    Object.keys(attention).map((layer) => [stack, layer]),
  );
}

function attentionSection() {
  const chosen = { layer: 0, head: 0 };
  const show = (body) => {
    if (!answer()) return body.replaceChildren(nothingYet());
    const layers = attentionLayers();
    const [stack, layer] = layers[chosen.layer];
    const { kept, num_heads: heads, top_k: experts } = answer().stacks[stack].attention[layer];
    const names = [`greatest of all ${heads}`, ...Array.from({ length: heads }, (_, n) => String(n + 1))];
    chosen.head = clamp(chosen.head, 0, heads);
    const controls = [
      choice("Layer", layers.map((names) => nameOf(...names)), chosen.layer, (number) => {
        chosen.layer = number;
        again(body, show, "input:checked");
      }),
    ];
    if (kept > 1) {
      controls.push(
        menu("Head", names, chosen.head, (number) => {
          chosen.head = number;
          again(body, show, "select");
        }),
      );
    }
    const notes = [];
    if (kept < heads) notes.push(`The sentence is long: of the ${heads} heads the greatest weight is shown.`);
    if (experts > 1) notes.push(`Mean over the ${experts} experts that each token chose, weighted by the router.`);
    const head = kept > 1 ? chosen.head : 1;
    body.replaceChildren(
      make("div", { class: "choices" }, controls),
      make("div", { class: "maps" }, attentionMaps(stack, layer, head, kept)),
      scale("0", "1", skips(stack) ? "skipped: the token has halted" : null),
      make("p", { class: "note", text: `Rows are queries, columns the keys they attend to. ${notes.join(" ")}` }),
    );
  };
  return followed(show);
}

// Draws a part again and gives the focus back to what the user had just changed.
function again(body, show, selector) {
  show(body);
  body.querySelector(`.choices ${selector}`)?.focus();
}

function nameOf(stack, layer) {
  return layer === "cross_attention" ? "cross-attention" : `${stack} ${LAYERS[layer]}`;
}

function skips(stack) {
  return answer().stacks[stack].computed.some((row) => row.includes("0"));
}

function attentionMaps(stack, layer, head, kept) {
  const rows = writesOf(stack);
  const columns = layer === "cross_attention" ? readsOf("encoder") : readsOf(stack);
  const weight = attention(stack, layer);
  const here = state.token.stack === stack ? placeIn(stack) : null;
  return answer().stacks[stack].computed.map((_, step) => {
    const value = (row, column) => {
      if (head > 0) return weight(step, head - 1, row, column);
      let greatest = null;
      for (let each = 0; each < kept; each++) {
        const one = weight(step, each, row, column);
        if (one !== null && (greatest === null || one > greatest)) greatest = one;
      }
      return greatest;
    };
    return mapFigure({
      caption: `Step ${step + 1}`,
      label: `${title(nameOf(stack, layer))} at step ${step + 1}`,
      rows,
      columns,
      value,
      here,
      say: (row, column, own) =>
        own === null
          ? `${quoted(rows[row][0])} has halted.`
          : `${quoted(rows[row][0])} looks at ${quoted(columns[column][0])}: ${decimal(own)}`,
    });
  });
}

function gateSection() {
  return followed((body) => {
    if (!answer()) return body.replaceChildren(nothingYet());
    const gated = Object.entries(answer().stacks).filter(([, stack]) => stack.gates);
    body.replaceChildren(
      make(
        "div",
        { class: "maps" },
        gated.map(([name, { gates }]) => {
          const words = writesOf(name);
          return mapFigure({
            caption: `${title(name)}: rows are steps, columns tokens`,
            label: `Copy gates of the ${name}`,
            rows: gates.map((_, step) => [`step ${step + 1}`]),
            columns: words,
            value: (step, place) => gates[step][place],
            say: (step, place, own) =>
              own === null
                ? `${quoted(words[place][0])} has halted.`
                : `${quoted(words[place][0])} at step ${step + 1}: the gate opens by ${decimal(own)}`,
          });
        }),
      ),
      scale("0, copied", "1, updated", gated.some(([name]) => skips(name)) ? "skipped" : null),
    );
  });
}
