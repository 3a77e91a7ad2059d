// What the pictures share: the page's colours, canvases that keep their sharpness, round numbers.

const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";

/** "ω₁" of coordinate 0. */
function coordinate(index) {
  return `ω${String(Number(index) + 1).replace(/\d/g, (digit) => SUBSCRIPTS[digit])}`;
}

/** How a density is called. */
function quantity(name) {
  return name === "radial" ? "|ω|" : coordinate(name);
}

/** An element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The colours of the page's theme, as the style sheet gives them. */
function themeOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(`--kg-${name}`).trim();
  return {
    text: colour("text"), faint: colour("faint"), grid: colour("grid"), back: colour("back"), dot: colour("dot"),
    curves: ["total", "first", "second", "third", "fourth"].map(colour), theory: colour("theory"), dark: colour("dark") === "1",
  };
}

/** Red, green and blue of a CSS colour. */
function bytes(colour) {
  const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data.slice(0, 3);
}

/** A canvas that fills its box with as many pixels as the screen has, and keeps a backdrop of what seldom changes. */
class Canvas {
  constructor(label, className) {
    this.element = make("canvas", { role: "img", "aria-label": label, class: className });
    this.context = this.element.getContext("2d");
    this.back = document.createElement("canvas");
    this.width = this.height = 0;
    this.ratio = 1;
  }

  /** Take the box's size; false where there is none to draw on. */
  fit() {
    const { clientWidth, clientHeight } = this.element;
    const ratio = window.devicePixelRatio || 1;
    if (clientWidth !== this.width || clientHeight !== this.height || ratio !== this.ratio) {
      Object.assign(this, { width: clientWidth, height: clientHeight, ratio, key: undefined });
      this.element.width = this.back.width = Math.round(clientWidth * ratio);
      this.element.height = this.back.height = Math.round(clientHeight * ratio);
    }
    return this.element.width > 0 && this.element.height > 0;
  }

  /** The backdrop, painted anew where the key is another; returns the context to draw on it. */
  backdrop(key, theme, paint) {
    const { context } = this;
    if (this.key === undefined || key.some((value, i) => value !== this.key[i])) {
      paint(this.begin(theme));
      this.back.getContext("2d").drawImage(this.element, 0, 0);
      this.key = key;
    } else {
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.drawImage(this.back, 0, 0);
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    }
    return context;
  }

  /** An empty page in CSS pixels, with the font of all labels. */
  begin(theme) {
    const { context, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = theme.back;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    context.setLineDash([]);
    return context;
  }
}

function write(context, text, x, y, align, colour, baseline = "middle") {
  context.textAlign = align;
  context.textBaseline = baseline;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** Round numbers between low and high, about `wanted` of them. */
function ticks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [];
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => span / size <= wanted);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span; i++) found.push(i * step);
  return found;
}

/** A number as short as its neighbours allow. */
function label(value, span) {
  if (Math.abs(value) < 1e-9 * span) return "0";
  const size = Math.max(Math.abs(value), span);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(span)) + 1));
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "").replace("-", "−");
}

/** The smallest and largest finite number of arrays; null if there is none. */
function extent(arrays) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of arrays) {
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return null;
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

/** Axes of a small panel: maps numbers to CSS pixels, draws frame, grid and labels. */
class Axes {
  constructor(canvas, x, y, { title, xlabel, log = false }) {
    Object.assign(this, { canvas, x, y, title, xlabel, log });
    this.box = { left: 44, right: canvas.width - 10, top: 22, bottom: canvas.height - 32 };
  }

  px(value) {
    return this.box.left + ((value - this.x[0]) / (this.x[1] - this.x[0])) * (this.box.right - this.box.left);
  }

  py(value) {
    return this.box.bottom - ((value - this.y[0]) / (this.y[1] - this.y[0])) * (this.box.bottom - this.box.top);
  }

  draw(context, theme) {
    const { left, right, top, bottom } = this.box;
    context.strokeStyle = theme.grid;
    context.beginPath();
    for (const value of ticks(...this.x, Math.max(2, (right - left) / 60))) {
      context.moveTo(this.px(value), top);
      context.lineTo(this.px(value), bottom);
      write(context, label(value, this.x[1] - this.x[0]), this.px(value), bottom + 9, "center", theme.faint);
    }
    for (const value of ticks(...this.y, Math.max(2, (bottom - top) / 22))) {
      if (this.log && !Number.isInteger(value)) continue;
      context.moveTo(left, this.py(value));
      context.lineTo(right, this.py(value));
      const text = this.log ? value ? `1e${value}`.replace("-", "−") : "1" : label(value, this.y[1] - this.y[0]);
      write(context, text, left - 5, this.py(value), "right", theme.faint);
    }
    context.stroke();
    context.strokeStyle = theme.faint;
    context.strokeRect(left, top, right - left, bottom - top);
    write(context, this.title, left, 10, "left", theme.text);
    write(context, this.xlabel, (left + right) / 2, bottom + 23, "center", theme.faint);
  }

  /** A curve through finite points; a gap where one is not. */
  line(context, xs, ys, colour, dash = [], width = 1.5) {
    context.save();
    context.beginPath();
    context.rect(this.box.left, this.box.top, this.box.right - this.box.left, this.box.bottom - this.box.top);
    context.clip();
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    let pen = false;
    for (let i = 0; i < xs.length; i++) {
      const finite = Number.isFinite(ys[i]);
      if (finite && pen) context.lineTo(this.px(xs[i]), this.py(ys[i]));
      else if (finite) context.moveTo(this.px(xs[i]), this.py(ys[i]));
      pen = finite;
    }
    context.stroke();
    context.restore();
  }
}
