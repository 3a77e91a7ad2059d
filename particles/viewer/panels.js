// The panels beside the particles: densities, eigenvalues, energies.

const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3]];

/** The largest finite number of the rows after the first tenth, where a start may stand out; each row from its place `skip` on. */
function peak(table, skip) {
  const first = Math.ceil(table.length / 10);
  let rows = table.filter((row, frame) => row && frame >= first);
  if (!rows.length) rows = table.filter(Boolean);
  let largest = 0;
  for (const row of rows) for (let i = skip; i < row.length; i++) if (row[i] > largest && row[i] < Infinity) largest = row[i];
  return largest;
}

/** Histogram of the particles' distance from 0, or of a coordinate, and a curve of theory. */
class DensityPanel extends Canvas {
  constructor(label) {
    super(label, "kg-panel");
  }

  draw(store, name, chain, frame, theme) {
    if (!this.fit()) return;
    const row = store.row(`density:${name}`, chain, frame) ?? store.nearest(`density:${name}`, chain, frame);
    const table = store.table(`density:${name}`, chain);
    const curve = store.run.theory[name];
    if (this.table !== table || this.arrivals !== store.arrivals) this.top = peak(table, 2);
    Object.assign(this, { table, arrivals: store.arrivals });
    const high = curve ? (extent([curve[1]]) ?? [0, 0])[1] : 0;
    const top = 1.08 * Math.max(this.top, Math.min(high, 1.5 * this.top)) || 1; // a curve may go to infinity
    const limits = store.run.limits[name];
    const axes = new Axes(this, limits, [0, top], { title: `density of ${quantity(name)}`, xlabel: quantity(name) });
    const context = this.backdrop([theme, name, top, ...limits], theme, (back) => axes.draw(back, theme));
    if (row) this.drawBars(context, axes, row, theme);
    if (curve) {
      axes.line(context, ...curve, theme.theory, [6, 3], 1.8);
      write(context, "– – theory", axes.box.right, 10, "right", theme.theory);
    }
  }

  drawBars(context, axes, row, theme) {
    const [low, high] = row;
    const width = (high - low) / (row.length - 2);
    context.fillStyle = theme.dot;
    context.globalAlpha = 0.65;
    for (let i = 2; i < row.length; i++) {
      const left = Math.max(axes.px(low + (i - 2) * width), axes.box.left);
      const right = Math.min(axes.px(low + (i - 1) * width), axes.box.right);
      const top = Math.max(axes.py(row[i]), axes.box.top);
      context.fillRect(left, top, Math.max(right - left - 0.5, 0.5), axes.box.bottom - top);
    }
    context.globalAlpha = 1;
  }
}

/** Eigenvalues of the kernel on given data, largest first, beside those of the first frame. */
class EigenvaluePanel extends Canvas {
  constructor() {
    super("Eigenvalues of the kernel on the data, largest first", "kg-panel");
  }

  draw(store, chain, frame, theme) {
    if (!this.fit()) return;
    const context = this.begin(theme);
    const row = store.row("gram", chain, frame) ?? store.nearest("gram", chain, frame);
    const first = store.table("gram", chain)[0];
    const curve = store.run.theory.gram;
    const logs = (values) => Array.from(values, (value) => (value > 0 ? Math.log10(value) : NaN));
    const known = [row, first, curve?.[1]].filter(Boolean).map(logs);
    const [low, high] = extent(known) ?? [-1, 0];
    const limits = [Math.max(low, high - 8) - 0.2, Math.ceil(high) + 0.1];
    const n = row?.length ?? 2;
    const axes = new Axes(this, [1, n], limits, { title: "eigenvalues of K(x, x) / n", xlabel: "number", log: true });
    axes.draw(context, theme);
    const numbers = Array.from({ length: n }, (_, i) => i + 1);
    if (first) axes.line(context, numbers, logs(first), theme.faint, [2, 2]);
    if (row) axes.line(context, numbers, logs(row), theme.curves[1], [], 2);
    if (curve) axes.line(context, curve[0], logs(curve[1]), theme.theory, [6, 3], 1.8);
    write(context, curve ? "··· first   – – theory" : "··· first frame", axes.box.right, 10, "right", theme.faint);
  }
}

/** Energies against the step, with a mark at the frame shown; a click or drag chooses a frame. */
class EnergyPanel extends Canvas {
  constructor(choose) {
    super("Energy against the step. Click to show a frame.", "kg-panel kg-energy");
    const jump = (event) => {
      if (!this.axes || !(event.buttons & 1)) return;
      const { left, width } = this.element.getBoundingClientRect();
      const { box, x } = this.axes;
      const at = ((event.clientX - left) * this.width) / width;
      choose(x[0] + ((at - box.left) / (box.right - box.left)) * (x[1] - x[0]), event.type === "pointerdown");
    };
    this.element.addEventListener("pointerdown", jump);
    this.element.addEventListener("pointermove", jump);
  }

  draw(model, chain, frame, theme) {
    if (!this.fit()) return;
    const run = model.get("run");
    this.backdrop([theme, run, model.get("energies"), chain], theme, (back) => this.drawCurves(back, model, chain, theme));
    const x = this.axes.px(run.steps[frame]);
    this.context.strokeStyle = theme.text;
    this.context.lineWidth = 1.5;
    this.context.beginPath();
    this.context.moveTo(x, this.axes.box.top);
    this.context.lineTo(x, this.axes.box.bottom);
    this.context.stroke();
    const y = this.axes.py(this.total?.[frame]);
    if (!(y >= this.axes.box.top && y <= this.axes.box.bottom)) return;
    this.context.fillStyle = theme.text;
    this.context.beginPath();
    this.context.arc(x, y, 3.5, 0, 2 * Math.PI);
    this.context.fill();
  }

  /** The curves, drawn once and kept: the first is the total. */
  drawCurves(context, model, chain, theme) {
    const { steps, energies: names, chains } = model.get("run");
    const numbers = floats(model.get("energies"));
    const curve = (term, c) => numbers.subarray((term * chains.length + c) * steps.length, (term * chains.length + c + 1) * steps.length);
    const shown = names.map((_, term) => curve(term, chain));
    this.total = shown[0];
    const [limits, note] = this.limits(shown, steps);
    const x = steps.length > 1 ? [steps[0], steps.at(-1)] : [steps[0] - 0.5, steps[0] + 0.5];
    this.axes = new Axes(this, x, limits, { title: "", xlabel: `step${note}` });
    this.axes.draw(context, theme);
    shown.forEach((values, term) => {
      const style = term % DASHES.length;
      this.axes.line(context, steps, values, theme.curves[style], DASHES[style], term ? 1.5 : 2);
    });
    this.drawNames(context, names, theme);
  }

  drawNames(context, names, theme) {
    if (!names.length) write(context, "no energy was saved", this.axes.box.left, 10, "left", theme.text);
    let left = this.axes.box.left;
    names.forEach((name, term) => {
      const style = term % DASHES.length;
      context.strokeStyle = theme.curves[style];
      context.lineWidth = 2;
      context.setLineDash(DASHES[style]);
      context.beginPath();
      context.moveTo(left, 10);
      context.lineTo(left + 18, 10);
      context.stroke();
      write(context, name, left + 22, 10, "left", theme.text);
      left += 34 + context.measureText(name).width;
    });
    context.setLineDash([]);
  }

  /** What the curves need; without the first tenth of the frames where that takes most of the axis, and a note that says so. */
  limits(curves, steps) {
    const whole = extent(curves) ?? [0, 1];
    const first = Math.ceil(steps.length / 10);
    const later = steps.length > 4 ? extent(curves.map((values) => values.subarray(first))) : null;
    const cut = later && whole[1] - whole[0] > 5 * (later[1] - later[0]);
    const [low, high] = cut ? later : whole;
    const margin = 0.08 * (high - low);
    return [[low - margin, high + margin], cut ? ` (vertical axis from step ${steps[first]})` : ""];
  }
}
