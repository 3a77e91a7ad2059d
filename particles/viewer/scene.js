// The particles: turned, moved and zoomed, coloured, with axes around them.

const MARGIN = { left: 48, right: 8, top: 8, bottom: 36 }; // around the plane, for its labels
const SIGNS = [[-1, -1], [-1, 1], [1, -1], [1, 1]];

class Scene extends Canvas {
  constructor() {
    super("Particles. Drag to turn or move them.", "kg-scene");
    this.discs = new Discs();
    this.axes = [0, 1, 2];
    this.home();
  }

  home() {
    Object.assign(this, { yaw: -0.6, pitch: 0.45, zoom: 1, moved: [0, 0] });
  }

  /** Turn (three axes) or move (two) by a drag in pixels. */
  drag(dx, dy) {
    if (this.axes.length === 3) {
      this.yaw -= dx / 150;
      this.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, this.pitch + dy / 150));
    } else {
      this.moved = [this.moved[0] + dx, this.moved[1] + dy];
    }
  }

  zoomBy(factor) {
    const zoom = Math.max(0.2, Math.min(50, this.zoom * factor));
    this.moved = this.moved.map((shift) => (shift * zoom) / this.zoom);
    this.zoom = zoom;
  }

  /** What takes coordinates to pixels: centre and scale of each coordinate, three rows (right, up, near), and lengths in pixels. */
  lens(run) {
    const flat = this.axes.length < 3;
    const limits = run.dims.map((dim) => run.limits[dim]);
    if (run.dims.length === 1) limits.push([0, Math.max(run.n_particles - 1, 1)]);
    while (limits.length < 3) limits.push([-1, 1]);
    const halves = limits.map(([low, high]) => (high - low) / 2);
    const common = Math.max(...run.dims.map((_, i) => halves[i]));
    const scale = run.dims.length === 1 ? halves.map((half) => 1 / half) : halves.map(() => 1 / common);
    const { width, height, zoom } = this;
    const { left, right, top, bottom } = flat ? MARGIN : { left: 0, right: 0, top: 0, bottom: 0 };
    const part = flat ? 0.46 : 0.32; // of the box: the cube is wider from corner to corner
    const [px, py] = [part * (width - left - right), part * (height - top - bottom)];
    const size = run.dims.length === 1 ? [px, py] : [Math.min(px, py), Math.min(px, py)];
    return {
      centre: limits.map(([low, high]) => (low + high) / 2), scale, halves, flat, rows: flat ? this.plane() : this.turned(),
      size: size.map((length) => length * zoom),
      origin: [(left + width - right) / 2 + this.moved[0], (top + height - bottom) / 2 + this.moved[1]],
    };
  }

  plane() {
    const unit = (axis) => [0, 1, 2].map((i) => (i === axis ? 1 : 0));
    return [unit(this.axes[0]), unit(this.axes[1] ?? 1), [0, 0, 0]];
  }

  /** Right, up and towards the eye, for a turn about the third axis and a tilt. */
  turned() {
    const [cy, sy, cp, sp] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    return [[cy, sy, 0], [-sy * sp, cy * sp, cp], [sy * cp, -cy * cp, sp]];
  }

  draw(run, positions, values, limits, theme, palette, caption) {
    if (!this.fit()) return 0;
    const lens = this.lens(run);
    const key = [theme, JSON.stringify(lens), run.dims.join()];
    const context = this.backdrop(key, theme, (back) => {
      if (lens.flat) this.drawGrid(back, run, lens, theme);
      else this.drawCube(back, run, lens, theme);
    });
    const missing = positions ? this.drawParticles(context, run, lens, positions, values, limits, theme, palette) : 0;
    if (values && limits) this.drawLegend(context, limits, theme, palette, caption);
    return missing;
  }

  /** All particles, far ones first; returns how many are not finite. */
  drawParticles(context, run, lens, positions, values, limits, theme, palette) {
    const { ratio, width, height } = this;
    const n = run.n_particles;
    const k = run.dims.length;
    this.reserve(n);
    const radius = Math.max(1.5, Math.min(6, (0.22 * Math.min(width, height) * Math.min(this.zoom, 3)) / Math.sqrt(n))) * ratio;
    this.discs.prepare(this.element.width, this.element.height, radius, !lens.flat, theme, palette);
    const missing = project(lens, positions, k, n, ratio, this.screen, this.levels);
    sortByLevel(this.levels, n, this.order);
    shade(values, limits, n, this.shades);
    for (let i = 0; i < n - missing; i++) {
      const at = this.order[i];
      this.discs.add(this.screen[2 * at], this.screen[2 * at + 1], this.levels[at], this.shades[at]);
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.discs.finish(), 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return missing;
  }

  reserve(n) {
    if (this.levels?.length === n) return;
    this.screen = new Float32Array(2 * n);
    this.levels = new Uint8Array(n);
    this.shades = new Uint8Array(n);
    this.order = new Uint32Array(n);
  }

  drawGrid(context, run, lens, theme) {
    const [a, b] = [this.axes[0], this.axes[1] ?? 1];
    const [left, right, top, bottom] = [MARGIN.left, this.width - MARGIN.right, MARGIN.top, this.height - MARGIN.bottom];
    const across = (x) => (x - lens.origin[0]) / (lens.size[0] * lens.scale[a]) + lens.centre[a];
    const up = (y) => (lens.origin[1] - y) / (lens.size[1] * lens.scale[b]) + lens.centre[b];
    const [x0, x1, y0, y1] = [across(left), across(right), up(bottom), up(top)];
    context.strokeStyle = theme.grid;
    context.beginPath();
    for (const value of ticks(x0, x1, (right - left) / 70)) {
      const x = left + ((value - x0) / (x1 - x0)) * (right - left);
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      write(context, label(value, x1 - x0), x, bottom + 10, "center", theme.faint);
    }
    for (const value of ticks(y0, y1, (bottom - top) / 50)) {
      const y = bottom - ((value - y0) / (y1 - y0)) * (bottom - top);
      context.moveTo(left, y);
      context.lineTo(right, y);
      write(context, label(value, y1 - y0), left - 6, y, "right", theme.faint);
    }
    context.stroke();
    write(context, coordinate(run.dims[a]), (left + right) / 2, bottom + 25, "center", theme.text);
    context.save();
    context.translate(10, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    write(context, run.dims.length === 1 ? "particle" : coordinate(run.dims[b]), 0, 0, "center", theme.text);
    context.restore();
  }

  drawCube(context, run, lens, theme) {
    const corner = (signs) => place(lens, signs.map((sign, i) => lens.centre[i] + sign * lens.halves[i]));
    const edges = [0, 1, 2].map((axis) =>
      SIGNS.map(([s, t]) => [-1, 1].map((sign) => corner([0, 1, 2].map((i) => (i === axis ? sign : i === (axis + 1) % 3 ? s : t))))),
    );
    context.strokeStyle = theme.grid;
    context.beginPath();
    for (const [from, to] of edges.flat()) {
      context.moveTo(...from);
      context.lineTo(...to);
    }
    context.stroke();
    edges.forEach((four, axis) => this.drawAxis(context, run, lens, axis, four, theme));
  }

  /** Name and limits of a coordinate at one of its four edges: the lowest, or the leftmost where they stand upright. */
  drawAxis(context, run, lens, axis, edges, theme) {
    const along = ([from, to], part) => [0, 1].map((i) => from[i] + part * (to[i] - from[i]));
    const upright = ([[x0, y0], [x1, y1]]) => Math.abs(y1 - y0) > 1.2 * Math.abs(x1 - x0);
    const rank = (edge) => (upright(edge) ? -along(edge, 0.5)[0] : along(edge, 0.5)[1]); // edges of one axis are parallel
    const ends = edges.reduce((best, edge) => (rank(edge) > rank(best) + 1e-6 ? edge : best));
    context.strokeStyle = theme.faint;
    context.beginPath();
    context.moveTo(...ends[0]);
    context.lineTo(...ends[1]);
    context.stroke();
    const out = along(ends, 0.5).map((at, i) => at - lens.origin[i]);
    const away = Math.hypot(...out) || 1;
    const inside = (value, size) => Math.max(12, Math.min(size - 12, value));
    const beside = (text, part, by, colour) => {
      const [x, y] = along(ends, part).map((at, i) => at + (by * out[i]) / away);
      const [near, level] = [inside(x, this.width), inside(y, this.height)];
      if (Math.hypot(near - x, level - y) < 2 * by) write(context, text, near, level, "center", colour); // else zoomed away
    };
    const [low, high] = run.limits[run.dims[axis]];
    beside(coordinate(run.dims[axis]), 0.5, 22, theme.text);
    beside(label(low, high - low), 0.06, 13, theme.faint);
    beside(label(high, high - low), 0.94, 13, theme.faint);
  }

  drawLegend(context, [low, high], theme, palette, caption) {
    const [left, top, length] = [this.width - 130, 12, 116];
    for (let i = 0; i < length; i++) {
      context.fillStyle = `rgb(${paint(palette, i / (length - 1), theme)})`;
      context.fillRect(left + i, top, 1.5, 8);
    }
    write(context, label(low, high - low), left, top + 17, "left", theme.text);
    write(context, label(high, high - low), left + length, top + 17, "right", theme.text);
    write(context, caption, left - 8, top + 4, "right", theme.text);
  }
}

/** CSS pixels of one point. */
function place({ centre, scale, rows, size, origin }, point) {
  const u = point.map((value, i) => (value - centre[i]) * scale[i]);
  const dot = (row) => row[0] * u[0] + row[1] * u[1] + row[2] * u[2];
  return [origin[0] + size[0] * dot(rows[0]), origin[1] - size[1] * dot(rows[1])];
}

/** Pixels and depth level of every particle (LEVELS where one is not finite); returns how many are not. */
function project({ centre, scale, rows, size, origin, flat }, positions, k, n, ratio, screen, levels) {
  const [[ax, ay, az], [bx, by, bz], [cx, cy, cz]] = rows;
  const [x0, y0, sx, sy] = [origin[0] * ratio, origin[1] * ratio, size[0] * ratio, size[1] * ratio];
  let missing = 0;
  for (let i = 0; i < n; i++) {
    const u = (positions[k * i] - centre[0]) * scale[0];
    const v = ((k > 1 ? positions[k * i + 1] : i) - centre[1]) * scale[1];
    const w = k > 2 ? (positions[k * i + 2] - centre[2]) * scale[2] : 0;
    const depth = flat ? 0 : cx * u + cy * v + cz * w;
    if (!Number.isFinite(u + v + w)) {
      levels[i] = LEVELS;
      missing++;
      continue;
    }
    screen[2 * i] = x0 + sx * (ax * u + ay * v + az * w);
    screen[2 * i + 1] = y0 - sy * (bx * u + by * v + bz * w);
    levels[i] = flat ? LEVELS - 1 : Math.max(0, Math.min(LEVELS - 1, Math.floor(((depth + 1.4) / 2.8) * LEVELS)));
  }
  return missing;
}

/** Places of the particles, lowest level first. */
function sortByLevel(levels, n, order) {
  const starts = new Uint32Array(LEVELS + 2);
  for (let i = 0; i < n; i++) starts[levels[i] + 1]++;
  for (let level = 0; level <= LEVELS; level++) starts[level + 1] += starts[level];
  for (let i = 0; i < n; i++) order[starts[levels[i]]++] = i;
}

/** The shade of every particle: of its value, of no value, of no colouring. */
function shade(values, limits, n, shades) {
  if (!values) {
    shades.fill(SHADES + 1);
    return;
  }
  const [low, high] = limits ?? [0, 1];
  for (let i = 0; i < n; i++) {
    const part = (values[i] - low) / (high - low);
    shades[i] = Number.isNaN(part) ? SHADES : Math.max(0, Math.min(SHADES - 1, Math.round(part * (SHADES - 1))));
  }
}

/** Limits of a colour over the rows that are there, without the outermost 1 in 100 on either side. */
function colourLimits(table) {
  const rows = table.filter(Boolean);
  const stride = Math.max(1, Math.floor((rows.length * (rows[0]?.length ?? 0)) / 20000));
  const sample = [];
  let at = 0;
  for (const row of rows) {
    for (; at < row.length; at += stride) if (Number.isFinite(row[at])) sample.push(row[at]);
    at -= row.length;
  }
  if (!sample.length) return null;
  const sorted = Float32Array.from(sample).sort();
  const [low, high] = [0.01, 0.99].map((part) => sorted[Math.round(part * (sorted.length - 1))]);
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}
