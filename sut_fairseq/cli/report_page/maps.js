// Maps: cells on a canvas, with words beside them and a cursor for mouse and keyboard.

const PALETTE = { current: null };

// The three colours of the scale as the present scheme has them.
function palette() {
  if (!PALETTE.current) {
    const style = getComputedStyle(document.documentElement);
    const stops = [0, 1, 2].map((n) =>
      style.getPropertyValue(`--map-${n}`).split(",").map(Number),
    );
    PALETTE.current = { stops, soft: style.getPropertyValue("--soft"), focus: style.getPropertyValue("--focus") };
  }
  return PALETTE.current;
}

// Red, green and blue of a value in [0, 1].
function colour(value) {
  const { stops } = palette();
  const [from, to] = value < 0.5 ? [stops[0], stops[1]] : [stops[1], stops[2]];
  const share = clamp(value < 0.5 ? 2 * value : 2 * value - 1, 0, 1);
  return from.map((one, n) => Math.round(one + share * (to[n] - one)));
}

// Black or white, whichever is easier to read on the colour of a value (WCAG's luminance).
function inkOn(value) {
  const [red, green, blue] = colour(value).map((one) => {
    const share = one / 255;
    return share <= 0.04 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#14130f" : "#ffffff";
}

// A map.
//   caption, label: shown above it, and said to a screen reader
//   rows, columns: words, [text, unknown]
//   value(row, column): number in [0, 1], null where nothing was computed
//   say(row, column, value): the reading under the cursor
//   here: row that is marked, or null
//   numbers: whether cells show per cents
//   upright: whether column labels are short enough to stand upright
function mapFigure({ caption, label, rows, columns, value, say, here = null, numbers = false, upright = false }) {
  const side = cellSide(rows.length, columns.length, numbers);
  const canvas = make("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `${label}: ${plural(rows.length, "row")}, ${plural(columns.length, "column")}; arrow keys read cells`,
  });
  const readout = make("p", { class: "readout", text: "" });
  let at = null;
  const paint = () => paintMap(canvas, { rows, columns, value, here, numbers, side, at });
  const move = (row, column) => {
    at = [row, column];
    readout.textContent = say(row, column, value(row, column));
    paint();
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    move(
      clamp(Math.floor((event.clientY - box.top) / side), 0, rows.length - 1),
      clamp(Math.floor((event.clientX - box.left) / side), 0, columns.length - 1),
    );
  });
  canvas.addEventListener("focus", () => at ?? move(here ?? 0, 0));
  canvas.addEventListener("keydown", (event) => {
    const [row, column] = at ?? [0, 0];
    const down = moved(event, row, rows.length, ["ArrowUp", "ArrowDown"]);
    const across = down === null ? moved(event, column, columns.length) : null;
    if (down === null && across === null) return;
    // Home and End are for the row.
    if (event.key === "Home" || event.key === "End") move(row, event.key === "Home" ? 0 : columns.length - 1);
    else move(down ?? row, across ?? column);
    announce(readout.textContent);
  });
  paint();
  repaint.push([canvas, paint]);
  forget();
  const labels = (words, name, marked) =>
    make(
      "div",
      { class: name, "aria-hidden": "true" },
      words.map(([text, unknown], number) =>
        make("span", { class: number === marked ? "here" : null, title: text, text: cut(text) + (unknown ? "?" : "") }),
      ),
    );
  return make(
    "figure",
    { class: "map" },
    make("figcaption", { text: caption }),
    make(
      "div",
      { class: "room" },
      make(
        "div",
        { class: "grid", "--side": `${side}px`, "--size": `${clamp(side * 0.82, 10, 13)}px` },
        labels(rows, "rows", here),
        canvas,
        labels(columns, upright ? "columns upright" : "columns", null),
      ),
    ),
    readout,
  );
}

// Maps that are on the page, to be painted again when the colours change.
let repaint = [];
let forgetting = false;

// Lets go of the maps that others have replaced, once those are on the page.
function forget() {
  if (forgetting) return;
  forgetting = true;
  requestAnimationFrame(() => {
    forgetting = false;
    repaint = repaint.filter(([canvas]) => canvas.isConnected);
  });
}

function paintAgain() {
  PALETTE.current = null;
  repaint = repaint.filter(([canvas]) => canvas.isConnected);
  for (const [, paint] of repaint) paint();
}

function cut(text) {
  const letters = [...text];
  return letters.length > 14 ? `${letters.slice(0, 13).join("")}…` : text;
}

function cellSide(rows, columns, numbers) {
  const room = Math.min(innerWidth - 130, numbers ? 620 : 300);
  return Math.floor(clamp(room / Math.max(columns, numbers ? 1 : rows), numbers ? 19 : 11, 26));
}

function paintMap(canvas, { rows, columns, value, here, numbers, side, at }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = columns.length * side * ratio;
  canvas.height = rows.length * side * ratio;
  canvas.style.width = `${columns.length * side}px`;
  canvas.style.height = `${rows.length * side}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${Math.round(side * 0.5)}px system-ui, sans-serif`;
  for (let row = 0; row < rows.length; row++) {
    for (let column = 0; column < columns.length; column++) {
      const [x, y] = [column * side, row * side];
      const own = value(row, column);
      if (own === null) {
        hatch(context, x, y, side - 1);
        continue;
      }
      context.fillStyle = `rgb(${colour(own).join(" ")})`;
      context.fillRect(x, y, side - 1, side - 1);
      if (numbers && own >= 0.005) {
        context.fillStyle = inkOn(own);
        context.fillText(Math.round(100 * own), x + side / 2 - 0.5, y + side / 2);
      }
    }
  }
  context.strokeStyle = palette().focus;
  context.lineWidth = 2;
  if (here !== null) context.strokeRect(1, here * side, columns.length * side - 3, side - 1);
  if (at) context.strokeRect(at[1] * side + 1, at[0] * side + 1, side - 3, side - 3);
}

function hatch(context, x, y, side) {
  context.save();
  context.beginPath();
  context.rect(x, y, side, side);
  context.clip();
  context.strokeStyle = palette().soft;
  context.globalAlpha = 0.45;
  context.lineWidth = 1;
  context.beginPath();
  for (let shift = 0; shift < 2 * side; shift += 5) {
    context.moveTo(x + shift, y);
    context.lineTo(x + shift - side, y + side);
  }
  context.stroke();
  context.restore();
}

// The colours in words.
function scale(low, high, hatched) {
  const items = [make("span", { class: "scale" }, low, make("i"), high)];
  if (hatched) items.push(make("span", { class: "scale" }, make("i", { class: "hatch" }), hatched));
  return make("div", {}, items);
}
