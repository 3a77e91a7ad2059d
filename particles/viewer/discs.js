// Particles as discs, written pixel by pixel.

const LEVELS = 8; // of depth: the far ones are smaller and fainter, and drawn first
const SHADES = 64; // of the palette; then one for no value, one for no colouring

/** A picture of discs, written pixel by pixel: thousands of them cost less than thousands of drawing calls. */
class Discs {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
    this.colours = new Uint8Array(3 * (SHADES + 2));
  }

  /** An empty picture of a size, with discs of a radius in pixels, and the theme's colours. */
  prepare(width, height, radius, deep, theme, palette) {
    if (this.image?.width !== width || this.image?.height !== height) {
      Object.assign(this.canvas, { width, height });
      this.image = this.context.createImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    this.words.fill(0);
    const key = [radius, deep].join();
    if (key !== this.key) {
      const near = (level) => (deep ? level / (LEVELS - 1) : 1);
      this.cell = 2 * Math.ceil(radius + 0.5) + 1;
      this.masks = Array.from({ length: LEVELS }, (_, level) =>
        disc(this.cell, radius * (0.6 + 0.4 * near(level)), 0.4 + 0.5 * near(level)),
      );
      this.key = key;
    }
    if (theme === this.theme) return;
    this.theme = theme;
    for (let shade = 0; shade < SHADES; shade++) this.colours.set(paint(palette, shade / (SHADES - 1), theme), 3 * shade);
    this.colours.set([...bytes(theme.faint), ...bytes(theme.dot)], 3 * SHADES);
  }

  /** One disc over what is there already. */
  add(x, y, level, shade) {
    const { cell, image, words } = this;
    const { data, width, height } = image;
    const mask = this.masks[level];
    const [red, green, blue] = [this.colours[3 * shade], this.colours[3 * shade + 1], this.colours[3 * shade + 2]];
    const [left, top] = [Math.round(x) - (cell >> 1), Math.round(y) - (cell >> 1)];
    const [i0, i1] = [Math.max(0, -left), Math.min(cell, width - left)];
    const [j0, j1] = [Math.max(0, -top), Math.min(cell, height - top)];
    for (let j = j0; j < j1; j++) {
      for (let i = i0; i < i1; i++) {
        const cover = mask[j * cell + i];
        if (!cover) continue;
        const at = (top + j) * width + left + i;
        const byte = 4 * at;
        if (!words[at]) {
          data[byte] = red;
          data[byte + 1] = green;
          data[byte + 2] = blue;
          data[byte + 3] = cover;
          continue;
        }
        const part = cover / 255;
        data[byte] += (red - data[byte]) * part;
        data[byte + 1] += (green - data[byte + 1]) * part;
        data[byte + 2] += (blue - data[byte + 2]) * part;
        data[byte + 3] += (255 - data[byte + 3]) * part;
      }
    }
  }

  finish() {
    this.context.putImageData(this.image, 0, 0);
    return this.canvas;
  }
}

/** How much of each pixel of a cell a disc covers, 0 to 255. */
function disc(cell, radius, opacity) {
  const mask = new Uint8Array(cell * cell);
  const middle = (cell - 1) / 2;
  for (let j = 0; j < cell; j++) {
    for (let i = 0; i < cell; i++) {
      const inside = Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(i - middle, j - middle)));
      mask[j * cell + i] = Math.round(255 * opacity * inside);
    }
  }
  return mask;
}

/** A colour of the palette without the end that the page's background hides. */
function paint(palette, part, theme) {
  const place = 3 * Math.round(255 * (theme.dark ? 0.15 + 0.85 * part : 0.9 * part));
  return palette.subarray(place, place + 3);
}
