// The page: controls, keys, and the loop that draws what changed.

const ZOOM = 1.25; // of one step
const RATES = [5, 10, 20, 30, 60];
const PLAY = { textContent: "▶", title: "Play (space)", ariaLabel: "Play (space)" };
const PAUSE = { textContent: "❚❚", title: "Pause (space)", ariaLabel: "Pause (space)" };

/** Set those properties of an element that are not so already: setting one costs the browser work. */
function renew(element, properties) {
  for (const [name, value] of Object.entries(properties)) if (element[name] !== value) element[name] = value;
}

/** A labelled list of choices. */
function choice(text, options, chosen, onChange) {
  const select = make("select", { "aria-label": text, title: text });
  for (const [value, name] of options) select.append(make("option", { value }, name));
  select.value = chosen;
  select.addEventListener("change", () => onChange(select.value));
  return { select, box: make("label", { class: "kg-choice" }, make("span", {}, text), select) };
}

function button(text, title, onClick) {
  const element = make("button", { type: "button", title, "aria-label": title, class: "kg-button" }, text);
  element.addEventListener("click", onClick);
  return element;
}

/** What the controls are made for: with another run they are made anew. */
function controlled({ colours, chains, dims, densities, gram }) {
  return JSON.stringify([colours, chains, dims, densities, gram]);
}

class Page {
  constructor(model, store, clock, el) {
    Object.assign(this, { model, store, clock, el });
    this.palette = new Uint8Array(model.get("palette").buffer.slice(model.get("palette").byteOffset));
    this.refresh = () => this.request();
    this.rebuild = () => this.onRun();
    this.retheme = () => {
      this.theme = undefined;
      this.request();
    };
    this.sizes = new ResizeObserver(this.refresh);
    this.build();
    this.listen();
  }

  build() {
    const { run } = this.store;
    this.built = controlled(run);
    this.scene = new Scene();
    this.first = new DensityPanel("Density of the particles");
    this.second = run.gram ? new EigenvaluePanel() : new DensityPanel("Marginal spectral density: density of one coordinate");
    this.energy = new EnergyPanel((step, rest) => this.jumpToStep(step, rest));
    this.el.replaceChildren();
    this.root = make("div", { class: "kg-viewer", tabindex: "0", role: "group", "aria-label": "Viewer of a particle run" });
    this.root.dataset.lmSuppressShortcuts = "true"; // keys are ours while the focus is here
    this.root.style.setProperty("--kg-height", `${this.model.get("height")}px`);
    this.status = make("div", { class: "kg-status", role: "status" });
    const panels = make("div", { class: "kg-panels" }, this.first.element, this.second.element, this.energy.element);
    const scene = make("div", { class: "kg-stage" }, this.scene.element);
    this.root.append(this.player(), make("div", { class: "kg-pictures" }, scene, panels), this.choices(), this.status);
    this.el.append(this.root);
    this.pointers();
    this.sizes.disconnect();
    this.sizes.observe(this.root);
  }

  player() {
    this.playButton = button("▶", "Play (space)", () => this.clock.toggle());
    this.slider = make("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Frame", class: "kg-slider" });
    this.slider.addEventListener("input", () => this.clock.jump(Number(this.slider.value), false));
    this.slider.addEventListener("change", () => this.clock.rest());
    this.step = make("span", { class: "kg-step" });
    const rates = RATES.map((rate) => [rate, `${rate} frames/s`]);
    const speed = choice("Playing speed", rates, this.clock.rate, (rate) => this.clock.setRate(Number(rate)));
    this.stop = button("■ Stop", "Stop the run at its next saved frame", () => this.askToStop());
    this.stop.classList.add("kg-stop");
    return make("div", { class: "kg-row" }, this.playButton, this.slider, this.step, speed.select, this.stop);
  }

  /** Say it until it is heard: a kernel that is sending may miss it. */
  askToStop() {
    if (this.gone || !this.store.run.live || this.model.get("stopped")) return;
    this.store.reach((model) => model.send({ stop: true }));
    setTimeout(() => this.askToStop(), 500);
  }

  choices() {
    const { run } = this.store;
    const set = (name) => (value) => {
      this.model.set(name, name === "chain" ? Number(value) : value);
      this.clock.rest();
    };
    this.selects = {};
    if (run.dims?.length === 1) this.scene.axes = [0, 1];
    const add = (name, text, options) => {
      const { select, box } = choice(text, options, this.model.get(name), set(name));
      this.selects[name] = select;
      return box;
    };
    const densities = (run.densities ?? []).map((name) => [name, quantity(name)]);
    const row = make("div", { class: "kg-row" }, add("colour", "Colour", (run.colours ?? []).map((name) => [name, name])));
    if (run.chains?.length > 1) row.append(add("chain", "Chain", run.chains.map((name, i) => [i, name])));
    if (run.dims?.length > 1) row.append(this.axesChoice(run.dims));
    row.append(add("density", "Density", densities));
    if (!run.gram) row.append(add("marginal", "Spectrum", densities.slice(1)));
    const zoom = [["−", "Zoom out (-)", 1 / ZOOM], ["+", "Zoom in (+)", ZOOM]].map(([text, title, factor]) =>
      button(text, title, () => this.look(() => this.scene.zoomBy(factor))),
    );
    row.append(make("span", { class: "kg-zoom" }, ...zoom, button("⌂", "Reset the view (0)", () => this.look(() => this.scene.home()))));
    return row;
  }

  axesChoice(dims) {
    const pairs = dims.length === 3 ? [[0, 1, 2], [0, 1], [0, 2], [1, 2]] : [[0, 1]];
    const name = (axes) => (axes.length === 3 ? "3-D" : axes.map((axis) => coordinate(dims[axis])).join(", "));
    this.scene.axes = pairs.find((axes) => axes.join() === this.scene.axes.join()) ?? pairs[0];
    const { box, select } = choice("Axes", pairs.map((axes) => [axes.join(), name(axes)]), this.scene.axes.join(), (value) =>
      this.look(() => {
        this.scene.home();
        this.scene.axes = value.split(",").map(Number);
      }),
    );
    select.disabled = pairs.length < 2;
    return box;
  }

  /** Change how the particles are looked at, and draw them. */
  look(change) {
    change();
    this.request();
  }

  pointers() {
    const { element } = this.scene;
    const held = new Map(); // the mouse, or the fingers: where each was last
    const apart = () => Math.hypot(...[0, 1].map((i) => [...held.values()].reduce((a, b) => a[i] - b[i])));
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      element.setPointerCapture(event.pointerId);
      held.set(event.pointerId, [event.clientX, event.clientY]);
    });
    element.addEventListener("pointermove", (event) => {
      const last = held.get(event.pointerId);
      if (!last) return;
      const before = held.size === 2 && apart();
      held.set(event.pointerId, [event.clientX, event.clientY]);
      if (before) this.look(() => this.scene.zoomBy(apart() / before));
      else if (held.size === 1) this.look(() => this.scene.drag(event.clientX - last[0], event.clientY - last[1]));
    });
    element.addEventListener("lostpointercapture", (event) => held.delete(event.pointerId));
    element.addEventListener("wheel", (event) => {
      if (!this.root.contains(document.activeElement)) return; // the notebook scrolls until the viewer is clicked
      event.preventDefault();
      this.look(() => this.scene.zoomBy(Math.exp(-event.deltaY / 400)));
    }, { passive: false });
    this.root.addEventListener("pointerdown", (event) => {
      if (event.target.tagName === "CANVAS") this.root.focus({ preventScroll: true });
    });
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    const turn = (dx, dy) => () => this.look(() => this.scene.drag(dx, dy));
    const arrows = { ArrowLeft: turn(-15, 0), ArrowRight: turn(15, 0), ArrowUp: turn(0, -15), ArrowDown: turn(0, 15) };
    const zoom = (factor) => () => this.look(() => this.scene.zoomBy(factor));
    const keys = {
      " ": () => this.clock.toggle(), ArrowLeft: () => this.clock.jump(this.clock.frame - 1),
      ArrowRight: () => this.clock.jump(this.clock.frame + 1), Home: () => this.clock.jump(0),
      End: () => this.clock.jump(this.store.nFrames - 1), "+": zoom(ZOOM), "-": zoom(1 / ZOOM), 0: () => this.look(() => this.scene.home()),
    };
    const act = event.shiftKey && arrows[event.key] ? arrows[event.key] : keys[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  jumpToStep(step, rest) {
    const { steps } = this.store.run;
    let best = 0;
    for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - step) < Math.abs(steps[best] - step)) best = i;
    this.clock.jump(best, rest);
  }

  listen() {
    this.events = ["frame", "chain", "colour", "density", "marginal", "stopped"].map((name) => `change:${name}`);
    for (const name of this.events) this.model.on(name, this.refresh);
    this.model.on("change:run", this.rebuild);
    this.store.listeners.add(this.refresh);
    this.themes = new MutationObserver(this.retheme);
    for (const element of [document.documentElement, document.body]) this.themes.observe(element, { attributes: true });
    this.request();
  }

  dispose() {
    for (const name of this.events) this.model.off(name, this.refresh);
    this.model.off("change:run", this.rebuild);
    this.store.listeners.delete(this.refresh);
    this.sizes.disconnect();
    this.themes.disconnect();
    cancelAnimationFrame(this.waiting);
    this.waiting = undefined;
    this.gone = true;
    this.el.replaceChildren();
  }

  /** A run's first frame brings the controls; later ones are only drawn. */
  onRun() {
    if (controlled(this.store.run) !== this.built) this.build();
    this.request();
  }

  request() {
    if (this.gone) return;
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = undefined;
      this.draw();
    });
  }

  draw() {
    const { model, store, clock } = this;
    if (!this.root.isConnected) return;
    if (!store.nFrames) {
      this.status.textContent = "Waiting for the first frame of the run.";
      return;
    }
    this.theme ??= themeOf(this.root);
    const [chain, frame, colour] = [model.get("chain"), Math.min(clock.frame, store.nFrames - 1), model.get("colour")];
    const latest = (part) => store.row(part, chain, frame) ?? store.nearest(part, chain, frame); // a new frame's rows come one by one
    const [positions, shown] = [store.row("positions", chain, frame), latest("positions")];
    const values = colour === "none" ? undefined : latest(`colour:${colour}`);
    const limits = values && this.limitsOf(colour, chain);
    const missing = this.scene.draw(store.run, shown, values, limits, this.theme, this.palette, colour);
    this.first.draw(store, model.get("density"), chain, frame, this.theme);
    if (store.run.gram) this.second.draw(store, chain, frame, this.theme);
    else this.second.draw(store, model.get("marginal"), chain, frame, this.theme);
    this.energy.draw(model, chain, frame, this.theme);
    this.controls(frame, positions, missing);
  }

  /** Limits of a colour, reckoned again when rows have come. */
  limitsOf(colour, chain) {
    const table = this.store.table(`colour:${colour}`, chain);
    const { arrivals } = this.store;
    if (this.coloured?.table !== table || this.coloured.arrivals !== arrivals) {
      this.coloured = { table, arrivals, limits: colourLimits(table) };
    }
    return this.coloured.limits;
  }

  controls(frame, positions, missing) {
    const { model, store, clock } = this;
    const { run } = store;
    const still = store.nFrames < 2;
    renew(this.slider, { max: String(store.nFrames - 1), value: String(frame), disabled: still });
    renew(this.playButton, { disabled: still, ...(clock.playing ? PAUSE : PLAY) });
    this.slider.setAttribute("aria-valuetext", `step ${run.steps[frame]}`);
    renew(this.step, { textContent: `step ${run.steps[frame].toLocaleString("en")}` });
    for (const [name, select] of Object.entries(this.selects)) renew(select, { value: String(model.get(name)) });
    renew(this.stop, { hidden: !run.live, disabled: Boolean(model.get("stopped")) });
    const notes = [run.caption];
    if (missing) notes.push(`${missing} particles of this frame are not finite and not drawn.`);
    if (!positions) notes.push("The positions of this frame have not come from the kernel: the nearest frame there is, is drawn.");
    if (store.lost) notes.push("The kernel is gone: the page shows what it holds.");
    if (store.error) notes.push(`The kernel answered: ${store.error}`);
    renew(this.status, { textContent: notes.join(" ") });
  }
}

export default () => {
  let store;
  let clock;
  let views = 0;
  return {
    initialize({ model }) {
      store = new Store(model);
      clock = new Clock(model, store);
      return () => {
        store.dispose();
        clock.dispose();
      };
    },
    render({ model, el }) {
      const page = new Page(model, store, clock, el);
      views += 1;
      return () => {
        page.dispose();
        views -= 1;
        if (views) return;
        if (clock.playing) clock.pause();
        store.clear(); // the widget outlives its views: the rows need not
      };
    },
  };
};
