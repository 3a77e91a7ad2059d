// What the kernel has sent, and the clock that all views of one widget share.

const PATIENCE = 10_000; // milliseconds before a question is asked again

/** Rows of numbers by part ("positions", "density:radial", ...), chain and frame; asks the kernel for those that are missing. */
class Store {
  constructor(model) {
    this.model = model;
    this.listeners = new Set();
    this.clear();
    this.onRows = (message, buffers) => this.receive(message, buffers);
    this.onRun = () => this.renew();
    model.on("msg:custom", this.onRows);
    model.on("change:run", this.onRun);
  }

  dispose() {
    this.model.off("msg:custom", this.onRows);
    this.model.off("change:run", this.onRun);
  }

  get run() {
    return this.model.get("run");
  }

  get nFrames() {
    return this.run.steps?.length ?? 0;
  }

  /** Forget all rows but those that the page holds itself. */
  clear() {
    this.tables = new Map();
    this.pending = new Map(); // when each question was asked
    this.arrivals = 0;
    this.error = "";
    this.version = this.run.version;
    for (const [part, buffer] of Object.entries(this.model.get("embedded"))) this.keep(part, 0, this.run.embedded ?? [], buffer);
  }

  /** Keep rows of numbers, one of each frame. */
  keep(part, chain, frames, buffer) {
    const table = this.table(part, chain);
    const numbers = floats(buffer);
    const length = numbers.length / frames.length;
    frames.forEach((frame, i) => {
      table[frame] = numbers.subarray(i * length, (i + 1) * length);
    });
  }

  renew() {
    if (this.run.version !== this.version) this.clear();
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  table(part, chain) {
    const key = `${part}/${chain}`;
    if (!this.tables.has(key)) this.tables.set(key, []);
    return this.tables.get(key);
  }

  /** The row of a frame, or undefined; what is missing is asked for, from this frame on. */
  row(part, chain, frame) {
    this.ask(part, chain, frame);
    return this.table(part, chain)[frame];
  }

  /** The row of the frame, or else of the nearest one there is. */
  nearest(part, chain, frame) {
    const table = this.table(part, chain);
    for (let distance = 0; distance < this.nFrames; distance++) {
      const found = table[frame - distance] ?? table[frame + distance];
      if (found) return found;
    }
    return undefined;
  }

  ask(part, chain, frame) {
    const key = `${part}/${chain}`;
    if (performance.now() - this.pending.get(key) < PATIENCE) return;
    const table = this.table(part, chain);
    let start = frame;
    while (start < this.nFrames && table[start]) start++;
    if (start >= this.nFrames) for (start = 0; start < frame && table[start]; ) start++;
    if (table[start] || start >= this.nFrames) return;
    this.pending.set(key, performance.now());
    this.reach((model) => model.send({ part, chain, start, version: this.version }));
  }

  /** Do what needs the kernel; where it is gone, the page goes on with the rows it holds. */
  reach(act) {
    try {
      act(this.model);
    } catch {
      this.lost = true;
    }
  }

  receive({ part, chain, start, rows, version, error }, buffers) {
    if (version !== this.version) return;
    this.pending.delete(`${part}/${chain}`);
    this.arrivals += 1;
    if (error) {
      this.error = error;
      this.pending.set(`${part}/${chain}`, Infinity); // never again
    } else {
      this.keep(part, chain, Array.from({ length: rows }, (_, i) => start + i), buffers[0]);
    }
    this.tell();
  }
}

/** A copy as float32: buffers come as views that need not be aligned. */
function floats(view) {
  if (!view || !view.byteLength) return new Float32Array(0);
  const { buffer, byteOffset = 0, byteLength } = view;
  return new Float32Array((buffer ?? view).slice(byteOffset, byteOffset + byteLength));
}

/** Plays and chooses frames; the widget's `frame` moves with it, and the kernel hears of it when it rests. */
class Clock {
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.rate = 30;
    this.playing = false;
    this.last = store.nFrames - 1;
    this.follow = () => {
      const last = this.store.nFrames - 1;
      if (this.frame === this.last || this.frame > last || this.last < 0) this.model.set("frame", Math.max(last, 0));
      this.last = last;
    };
    model.on("change:run", this.follow);
  }

  dispose() {
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.model.off("change:run", this.follow);
  }

  get frame() {
    return this.model.get("frame");
  }

  /** Show a frame, the nearest there is; `rest` tells the kernel. */
  jump(frame, rest = true) {
    this.model.set("frame", Math.max(0, Math.min(this.store.nFrames - 1, frame)));
    this.since = undefined;
    if (rest) this.rest();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.store.nFrames < 2) return;
    if (this.frame === this.store.nFrames - 1) this.jump(0, false);
    this.playing = true;
    this.since = undefined;
    this.request = requestAnimationFrame((now) => this.tick(now));
    this.store.tell();
  }

  pause() {
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.rest();
    this.store.tell();
  }

  rest() {
    this.store.reach((model) => model.save_changes());
  }

  setRate(rate) {
    this.rate = rate;
    this.since = undefined;
  }

  /** Move on by the time that went by; wait where positions have not come yet. */
  tick(now) {
    if (!this.playing) return;
    this.since ??= { now, frame: this.frame };
    const due = Math.min(this.since.frame + Math.floor(((now - this.since.now) * this.rate) / 1000), this.store.nFrames - 1);
    if (due > this.frame) {
      if (this.store.row("positions", this.model.get("chain"), due)) this.model.set("frame", due);
      else this.since = undefined;
    }
    if (this.frame === this.store.nFrames - 1) this.pause();
    else this.request = requestAnimationFrame((later) => this.tick(later));
  }
}
