"""Notebooks that the browser tests run, and how they look at the viewers in them."""

from __future__ import annotations

IMPORTS = """
import numpy as np
import xarray as xr
from particles import Alignment, Ball, FullSpace, Langevin, Quadratic, Riesz, simulate
from particles.viewer import live_view, view
"""
SMALL = """
ball, rng = Ball(1.0, 3), np.random.default_rng(0)
start = ball.sample(2 * 300, 0).reshape(2, 300, 3)
run = simulate(start, Riesz(1, 1.0) + Quadratic(1.0), ball, Langevin(0.01, 50.0), n_steps=200, save_every=2, rng=0)
x, r = rng.normal(size=(40, 3)), np.linspace(0, 1, 50)
labels = np.sign(x[:, 0])
"""
VIEW = """
viewer = view(
    run, colours={"trap": Quadratic(1.0), "alignment": Alignment(x, labels, "fourier")}, gram=(x, "fourier"),
    theory={"radial": (r, 3 * r**2)},
)
viewer
"""
HASH = "canvas => { let h = 0; for (const c of canvas.toDataURL()) h = (31 * h + c.charCodeAt(0)) | 0; return h; }"


def run_all(page, url):
    """Open a notebook, run it, and wait for its last viewer."""
    page.goto(url)
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=90_000)
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector(".kg-viewer option", timeout=90_000, state="attached")


def step(page, view=0):
    return int(page.locator(".kg-step").nth(view).inner_text().removeprefix("step ").replace(",", ""))


def wait_for_step(page, number, view=0):
    page.wait_for_function(
        "([view, number]) => document.querySelectorAll('.kg-step')[view].textContent.replace(',', '') === `step ${number}`",
        arg=[view, number],
        timeout=20_000,
    )


def picture(page, selector=".kg-scene"):
    """A number that changes when a canvas does."""
    page.wait_for_timeout(150)
    return page.locator(selector).first.evaluate(HASH)


def loaded(page):
    """Wait until no row comes any more."""
    before = None
    while (now := [picture(page), picture(page, ".kg-panel >> nth=1")]) != before:
        before = now
        page.wait_for_timeout(600)
