"""What a viewer leaves behind in JupyterLab: run again, reopened, without its kernel; nothing grows and nothing breaks."""

from __future__ import annotations

import itertools

from tests.browser.notebooks import IMPORTS, SMALL, VIEW, loaded, picture, run_all, step, wait_for_step

KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
COUNT_FRAMES = """window.asked = 0;
const ask = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (act) => { window.asked += 1; return ask(act); };"""


def counted(page):
    """Listeners and canvases of the page when its garbage is gone, and the frames it asks for in a second of rest."""
    devtools = page.context.new_cdp_session(page)
    for method in ("HeapProfiler.enable", "HeapProfiler.collectGarbage", "Performance.enable"):
        devtools.send(method)
    metrics = {item["name"]: item["value"] for item in devtools.send("Performance.getMetrics")["metrics"]}
    before = page.evaluate("window.asked")
    page.wait_for_timeout(1000)
    return {
        "frames": page.evaluate("window.asked") - before,
        "canvases": page.locator("canvas").count(),
        "listeners": metrics["JSEventListeners"],
    }


def test_running_a_cell_again_leaves_nothing_behind(lab, page, output):
    page.add_init_script(COUNT_FRAMES)
    run_all(page, lab.notebook("again", IMPORTS + SMALL, VIEW))
    found = []
    for _ in range(3):
        for _ in range(4):
            page.get_by_role("button", name="Play").click()
            page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
            page.wait_for_timeout(1500)
        loaded(page)
        found.append(counted(page))
    (output / "again.txt").write_text("\n".join(map(str, found)))
    for before, after in itertools.pairwise(found):
        assert after["canvases"] == 4
        assert after["frames"] == 0
        assert after["listeners"] - before["listeners"] < 60  # of JupyterLab's cells; four views have over 100
    assert page.problems == []


def test_a_viewer_plays_on_when_its_kernel_is_restarted(lab, page, output):
    run_all(page, lab.notebook("restart", IMPORTS + SMALL, VIEW))
    loaded(page)
    page.get_by_label("Playing speed").select_option("10")
    page.get_by_role("button", name="Play").click()
    page.evaluate(f"{KERNEL}.restart()")
    page.wait_for_timeout(4000)
    first = step(page)
    page.wait_for_timeout(1000)
    assert step(page) > first
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Colour").select_option("speed")
    page.locator(".kg-slider").fill("20")
    wait_for_step(page, 40)
    page.screenshot(path=output / "restarted.png")
    assert "The kernel is gone: the page shows what it holds." in page.locator(".kg-status").inner_text()
    assert page.problems == []


def test_a_saved_viewer_is_reopened_without_its_kernel(lab, page, output):
    url = lab.notebook("saved", IMPORTS + SMALL, VIEW)
    run_all(page, url)
    loaded(page)
    page.evaluate("window.jupyterapp.commands.execute('@jupyter-widgets/jupyterlab-manager:saveWidgetState')")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_timeout(1500)
    assert (lab.folder / "saved.ipynb").stat().st_size < 600_000
    page.evaluate(f"{KERNEL}.shutdown()")
    page.wait_for_timeout(1000)
    page.goto("about:blank")
    page.problems.clear()
    page.goto(url)
    page.wait_for_selector(".kg-viewer option", timeout=60_000, state="attached")
    page.wait_for_timeout(1500)
    page.screenshot(path=output / "reopened.png")
    blue = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.filter((v, i, all) => "
    blue += "i % 4 === 2 && v - all[i - 2] > 60).length"
    assert page.locator(".kg-panel").first.evaluate(blue) > 100  # bars of the density
    before = picture(page)
    page.locator(".kg-scene").click(position={"x": 50, "y": 50})
    page.keyboard.press("Shift+ArrowRight")
    assert picture(page) != before
    assert page.problems == []


def test_one_live_view_shows_one_run_after_the_other(lab, page, output):
    first = "live = live_view(rate=50)\nrun = simulate(start, Riesz(1, 1.0), ball, Langevin(0.01, 50.0), n_steps=60, rng=0, callback=live)"
    second = (
        "plane = Ball(1.0, 2)\nrun = simulate(plane.sample(50, 0), Quadratic(1.0), plane, Langevin(0.01, 50.0), n_steps=30, rng=0, "
        "callback=live)\nlive"
    )
    run_all(page, lab.notebook("after", IMPORTS + SMALL, first, second))
    page.wait_for_function("document.querySelectorAll('.kg-viewer').length === 3", timeout=60_000)
    for view in range(3):
        wait_for_step(page, 30, view=view)
    page.wait_for_timeout(1000)
    assert all(text.startswith("50 particles") for text in page.locator(".kg-status").all_inner_texts())
    assert page.get_by_label("Chain").count() == 0
    page.screenshot(path=output / "after.png")
    page.keyboard.press("Escape")
    assert page.problems == []


def test_labels_focus_and_two_fingers(lab, page, output):
    run_all(page, lab.notebook("labels", IMPORTS + SMALL, VIEW))
    loaded(page)
    names = page.evaluate(
        "[...document.querySelectorAll('.kg-viewer button, .kg-viewer select, .kg-viewer input, .kg-viewer canvas')]"
        ".map((element) => element.getAttribute('aria-label'))"
    )
    assert all(names)
    assert len(set(names)) == len(names)
    root = page.locator(".kg-viewer")
    root.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert root.evaluate("root => root === document.activeElement && getComputedStyle(root).outlineStyle === 'solid'")
    focused = []
    for _ in range(8):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    page.screenshot(path=output / "focus.png")
    assert focused[:3] == ["Play (space)", "Frame", "Playing speed"]
    assert len(set(focused)) == 8
    before = picture(page)
    box = page.locator(".kg-scene").bounding_box()
    devtools = page.context.new_cdp_session(page)
    middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}

    def fingers(kind, *shifts):
        points = [{"x": middle["x"] + shift, "y": middle["y"], "id": i} for i, shift in enumerate(shifts)]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", -40)
    fingers("touchStart", -40, 40)
    fingers("touchMove", -80, 80)
    page.screenshot(path=output / "pinched.png")
    fingers("touchEnd")
    assert picture(page) != before
    root.focus()
    page.keyboard.press("0")
    assert picture(page) == before
    assert page.problems == []
