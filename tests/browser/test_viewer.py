"""The viewer in JupyterLab in a real browser: what a person does with it, what they see, and how fast it is."""

from __future__ import annotations

import time

import pytest

from tests.browser.notebooks import IMPORTS, SMALL, VIEW, loaded, picture, run_all, step, wait_for_step

LARGE = """
n, frames = 5000, 500
start = rng.normal(size=(n, 3))
turns = np.linspace(0, 4, frames)[:, None]
spiral = np.stack([start[:, 0] * np.cos(turns) - start[:, 1] * np.sin(turns), start[:, 0] * np.sin(turns) + start[:, 1] * np.cos(turns),
                   start[:, 2] * (1 + 0.3 * np.sin(turns))], -1)
steps = 10 * np.arange(frames)
big = xr.Dataset({"omega": (("chain", "step", "particle", "dim"), spiral[None]),
                  "energy": (("chain", "step"), np.exp(-turns.T))},
                 {"step": steps, "chain": [0], "particle": np.arange(n), "dim": np.arange(3)})
viewer = view(big, colours={"first": start[:, 0]})
viewer
"""
COUNT = """async seconds => {
  const slider = document.querySelector(".kg-slider");
  const [begin, seen, gaps] = [performance.now(), new Set(), []];
  let last = begin;
  while (performance.now() - begin < 1000 * seconds) {
    await new Promise(requestAnimationFrame);
    if (seen.has(slider.value)) continue;
    seen.add(slider.value);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return {rate: (seen.size - 1) / (last - begin) * 1000, worst: Math.max(...gaps.slice(1))};
}"""


@pytest.fixture
def small(lab, page):
    run_all(page, lab.notebook("small", IMPORTS + SMALL, VIEW))
    loaded(page)
    return page


def test_play_scrub_colour_and_turn(small, output):
    page = small
    scene = page.locator(".kg-scene")
    page.screenshot(path=output / "light.png")
    assert step(page) == 200
    assert page.locator(".kg-status").inner_text() == "300 particles, 101 frames, 2 chains."

    page.get_by_role("button", name="Play").click()
    wait_for_step(page, 200)
    page.wait_for_function("document.querySelector('.kg-button').textContent === '▶'")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    wait_for_step(page, 194)
    page.locator(".kg-slider").fill("20")
    wait_for_step(page, 40)

    pictures = [picture(page)]
    for colour in ("trap", "alignment", "speed"):
        page.get_by_label("Colour").select_option(colour)
        page.wait_for_timeout(800)
        pictures.append(picture(page))
        page.screenshot(path=output / f"colour_{colour}.png")
    assert len(set(pictures)) == 4

    box = scene.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 150, steps=5)
    page.mouse.up()
    assert picture(page) != pictures[-1]
    page.screenshot(path=output / "turned.png")
    before = picture(page)
    page.mouse.wheel(0, -300)
    assert picture(page) != before
    page.keyboard.press("0")
    assert picture(page) == pictures[-1]

    page.get_by_label("Axes").select_option("0,1")
    page.get_by_label("Chain").select_option("1")
    page.wait_for_timeout(1000)
    page.screenshot(path=output / "flat.png")
    energy = page.locator(".kg-energy").bounding_box()
    page.mouse.click(energy["x"] + 44 + (energy["width"] - 54) / 2, energy["y"] + energy["height"] / 2)
    page.wait_for_function("Math.abs(document.querySelector('.kg-step').textContent.slice(5) - 100) <= 2", timeout=20_000)
    assert page.problems == []


def test_keys_play_step_and_turn_and_leave_the_notebook_alone(small):
    page = small
    page.locator(".kg-scene").click(position={"x": 50, "y": 50})
    page.keyboard.press("Home")
    wait_for_step(page, 0)
    page.keyboard.press("ArrowRight")
    wait_for_step(page, 2)
    before = picture(page)
    page.keyboard.press("Shift+ArrowRight")
    assert picture(page) != before
    assert step(page) == 2
    page.keyboard.press(" ")
    page.wait_for_function("document.querySelector('.kg-button').textContent === '❚❚'")
    page.keyboard.press(" ")
    page.wait_for_function("document.querySelector('.kg-button').textContent === '▶'")
    page.keyboard.press("End")
    wait_for_step(page, 200)
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2
    assert page.problems == []


def test_two_views_show_one_frame_python_sets_it_and_views_come_and_go(lab, page, output):
    run_all(page, lab.notebook("twice", IMPORTS + SMALL, VIEW, "viewer", "viewer.frame = 10; viewer.colour = 'speed'"))
    page.wait_for_function("document.querySelectorAll('.kg-viewer').length === 2")
    wait_for_step(page, 20, view=0)
    wait_for_step(page, 20, view=1)
    page.locator(".kg-slider").nth(1).fill("30")
    wait_for_step(page, 60, view=0)
    page.get_by_role("button", name="Play").first.click()
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_timeout(8000)
    page.wait_for_function("document.querySelectorAll('.kg-viewer').length === 2")
    page.screenshot(path=output / "twice.png")
    page.evaluate("window.jupyterapp.commands.execute('editmenu:clear-all')")
    page.wait_for_function("document.querySelectorAll('.kg-viewer').length === 0")
    page.wait_for_timeout(500)
    assert page.problems == []


def test_dark_theme_and_a_narrow_cell(small, output):
    page = small
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
    page.get_by_label("Colour").select_option("alignment")
    page.wait_for_timeout(1500)
    pixel = page.locator(".kg-scene").evaluate("canvas => [...canvas.getContext('2d').getImageData(2, 2, 1, 1).data]")
    assert max(pixel[:3]) < 60
    page.screenshot(path=output / "dark.png")
    page.set_viewport_size({"width": 760, "height": 1300})
    page.wait_for_timeout(800)
    assert page.locator(".kg-scene").evaluate("canvas => canvas.width === canvas.clientWidth * devicePixelRatio")
    assert page.locator(".kg-viewer").evaluate("root => root.scrollWidth <= root.clientWidth")
    page.screenshot(path=output / "narrow.png")
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    page.wait_for_function("document.body.dataset.jpThemeLight === 'true'")
    assert page.problems == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("plane", "start = Ball(1.0, 2).sample(200, 0)"),
        ("line", "start = np.linspace(-1, 1, 9)[:, None]"),
        ("one", "start = np.zeros((1, 2))"),
    ],
)
def test_other_shapes(lab, page, output, name, code):
    more = "run = simulate(start, Quadratic(1.0), FullSpace(start.shape[1]), Langevin(0.02, 5.0), n_steps=20 * (len(start) > 1), rng=0)"
    run_all(page, lab.notebook(name, IMPORTS + code + "\n" + more, "view(run)"))
    loaded(page)
    page.screenshot(path=output / f"{name}.png")
    assert page.get_by_role("button", name="Play").is_enabled() == (name != "one")
    assert page.problems == []


def test_particles_that_are_not_finite_are_counted(lab, page, output):
    lost = "run.omega[0, -1, :7] = np.nan; run.energy[0, 40:50] = np.inf"
    run_all(page, lab.notebook("lost", IMPORTS + SMALL + lost, "view(run, colours={'trap': Quadratic(1.0)}, gram=(x, 'fourier'))"))
    page.get_by_label("Colour").select_option("trap")
    loaded(page)
    page.screenshot(path=output / "lost.png")
    assert "7 particles of this frame are not finite and not drawn." in page.locator(".kg-status").inner_text()
    assert page.problems == []


GREENISH = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((level, i) => i % 4 === 1 && level > data[i + 1] + 60).length;
}"""  # pixels of the upper half of viridis


def test_live_view_follows_the_run_and_stops_it(lab, page, output):
    run = """
live = live_view(colours={"trap": Quadratic(1.0)})
run = simulate(start[0], Riesz(1, 1.0), ball, Langevin(0.001, 50.0), n_steps=10**6, save_every=5, rng=0, callback=live)
print("ended at", int(run.step[-1]))
"""
    run_all(page, lab.notebook("live", IMPORTS + SMALL, run))
    page.wait_for_function("document.querySelector('.kg-slider').max > 15", timeout=60_000)
    page.wait_for_timeout(300)
    first = step(page)
    page.wait_for_timeout(1000)
    assert step(page) > first
    page.get_by_label("Colour").select_option("trap")
    page.wait_for_timeout(1500)
    scene = page.locator(".kg-scene").first
    for _ in range(8):  # new frames come without the colour going
        assert scene.evaluate(GREENISH) > 100
        page.wait_for_timeout(130)
    page.wait_for_function("(({ value, max }) => value === max)(document.querySelector('.kg-slider'))", timeout=10_000)
    page.screenshot(path=output / "live.png")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".jp-OutputArea-output:has-text('ended at')", timeout=30_000)
    page.wait_for_function("document.querySelector('.kg-stop').hidden", timeout=30_000)
    loaded(page)
    page.screenshot(path=output / "stopped.png")
    ended = int(page.locator(".jp-OutputArea-output:has-text('ended at')").last.inner_text().split()[-1])
    assert step(page) == ended
    assert page.problems == []


def test_five_thousand_particles_play_at_twenty_frames_a_second(lab, page, output):
    run_all(page, lab.notebook("large", IMPORTS + SMALL, LARGE))
    page.locator(".kg-scene").click(position={"x": 20, "y": 20})
    page.get_by_label("Colour").select_option("first")
    page.get_by_label("Playing speed").select_option("60")
    begun = time.monotonic()
    loaded(page)
    waited = time.monotonic() - begun
    page.get_by_role("button", name="Play").click()
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    before = {item["name"]: item["value"] for item in devtools.send("Performance.getMetrics")["metrics"]}
    measured = page.evaluate(COUNT, 6)
    after = {item["name"]: item["value"] for item in devtools.send("Performance.getMetrics")["metrics"]}
    page.screenshot(path=output / "large.png")
    drawn = measured["rate"] * 6
    script, task = (1000 * (after[name] - before[name]) / drawn for name in ("ScriptDuration", "TaskDuration"))
    (output / "speed.txt").write_text(
        f"5,000 particles, 500 frames: {measured['rate']:.1f} frames/s, longest gap {measured['worst']:.0f} ms, "
        f"script {script:.1f} ms and main thread {task:.1f} ms a frame, loaded in {waited:.1f} s\n"
    )
    assert measured["rate"] >= 20
    assert page.problems == []
