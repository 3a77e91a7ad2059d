"""The viewer without a browser: the rows it sends are the Dataset's numbers, bad input is refused, pages without a kernel get a picture."""

from __future__ import annotations

import base64
import importlib.util
import io
import subprocess
import sys
import tracemalloc
import types
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

pytest.importorskip("anywidget")

from particles import Alignment, Ball, External, FullSpace, Langevin, Quadratic, Riesz, Torus, particle_energies, simulate
from particles.plots.density import density_samples
from particles.viewer import live_view, sources, view
from particles.viewer.recording import CHUNK_BYTES, EMBED_BYTES
from particles.viewer.sources import spread

ROOT = Path(__file__).parents[1]
H = Quadratic(1.0) + Riesz(1, 1.0)


@pytest.fixture(scope="module")
def run():
    start = Ball(1.0, 3).sample(2 * 12, 0).reshape(2, 12, 3)
    return simulate(start, H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0)


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).normal(size=(10, 3))
    return x, np.sign(x[:, 0])


def made(omega: np.ndarray, **more: np.ndarray) -> xr.Dataset:
    """A trajectory of given particles (chain, step, particle, dim)."""
    names = ("chain", "step", "particle", "dim")
    variables = {"omega": (names, omega)} | {name: (names[: values.ndim], values) for name, values in more.items()}
    return xr.Dataset(variables, {name: np.arange(size) for name, size in zip(names, omega.shape)})


def ask(viewer, part, chain=0, start=0):
    """What the page gets for a question: the message and its rows."""
    sent = []
    viewer.send = lambda message, buffers=(): sent.append((message, buffers))
    viewer._answer(viewer, {"part": part, "chain": chain, "start": start, "version": 0}, None)
    del viewer.send
    ((message, buffers),) = sent
    rows = [np.frombuffer(buffer, np.float32).reshape(message["rows"], -1) for buffer in buffers]
    return message, rows[0] if rows else None


def picture(viewer):
    """The size of the picture in the viewer's output."""
    bundle = viewer._repr_mimebundle_()[0]
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == viewer.model_id
    return Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).size


def test_positions_are_those_of_the_dataset(run):
    viewer = view(run)
    message, rows = ask(viewer, "positions", chain=1, start=3)
    assert message == {"part": "positions", "chain": 1, "start": 3, "version": 0, "rows": 18}
    np.testing.assert_array_equal(rows.reshape(18, 12, 3), run.omega[1, 3:].to_numpy().astype(np.float32))
    assert viewer.run["steps"] == run.step.to_numpy().tolist()
    assert viewer.frame == 20
    assert viewer.run["caption"] == "12 particles, 21 frames, 2 chains."


def test_energies_are_those_of_the_dataset_total_first(run):
    viewer = view(run)
    assert viewer.run["energies"] == ["energy", "quadratic", "riesz"]
    sent = np.frombuffer(viewer.energies, np.float32).reshape(3, 2, 21)
    for values, name in zip(sent, ("energy", "energy_quadratic", "energy_riesz")):
        np.testing.assert_array_equal(values, run[name].to_numpy().astype(np.float32))
    assert view(run.drop_vars(["energy", "energy_quadratic", "energy_riesz"])).run["energies"] == []


@pytest.mark.parametrize("name", ["radial", "0", "2"])
def test_densities_are_histograms_of_mass_one_on_limits_of_the_run(run, name):
    viewer = view(run)
    _, rows = ask(viewer, f"density:{name}", chain=1)
    samples = density_samples(run.omega.to_numpy(), name if name == "radial" else int(name))
    np.testing.assert_allclose(rows[:, :2], np.broadcast_to([samples.min(), samples.max()], (21, 2)), rtol=1e-6)
    heights, edges = np.histogram(samples[1, 7], rows.shape[1] - 2, (samples.min(), samples.max()), density=True)
    np.testing.assert_allclose(rows[7, 2:], heights, rtol=1e-6)
    np.testing.assert_allclose(rows[:, 2:].sum(1) * np.diff(edges)[0], 1, rtol=1e-6)


def test_colours_by_energy_label_alignment_array_and_speed(run, data):
    by_step = np.arange(2 * 21 * 12.0).reshape(2, 21, 12)
    labels = xr.DataArray(np.arange(24.0).reshape(12, 2), dims=("particle", "chain"))
    alignment = Alignment(*data, "fourier")
    colours = {"H": H, "alignment": alignment, "by step": by_step, "labels": labels, "one": np.arange(12)}
    viewer = view(run, colours=colours)
    assert viewer.run["colours"] == ["none", *colours, "speed"]
    omega = run.omega.to_numpy()
    rows = {name: ask(viewer, f"colour:{name}", chain=1)[1] for name in [*colours, "speed"]}
    np.testing.assert_allclose(rows["H"], particle_energies(omega[1], H), rtol=1e-6)
    np.testing.assert_allclose(rows["alignment"], particle_energies(omega[1], alignment), rtol=1e-6)
    np.testing.assert_array_equal(rows["by step"], by_step[1])
    np.testing.assert_array_equal(rows["labels"], np.tile(labels.to_numpy()[:, 1], (21, 1)))
    np.testing.assert_array_equal(rows["one"][5], np.arange(12))
    moved = np.linalg.norm(np.diff(omega[1], axis=0), axis=-1) / 2
    np.testing.assert_allclose(rows["speed"][1:], moved, rtol=1e-6)
    np.testing.assert_array_equal(rows["speed"][0], rows["speed"][1])


def test_speed_crosses_the_seam_of_a_torus():
    omega = np.array([0.9, 0.1, 0.2])[None, :, None, None]
    run = made(omega).assign_attrs(domain='{"name": "Torus", "period": [1.0]}')
    np.testing.assert_allclose(ask(view(run), "colour:speed")[1][:, 0], [0.2, 0.2, 0.1], rtol=1e-6)
    live = live_view(domain=Torus(1.0))
    for step, frame in enumerate(omega[0]):
        live._sent = -np.inf
        live(step, {"omega": frame[None], "energy": np.zeros(1)})
    np.testing.assert_allclose(ask(live, "colour:speed")[1][:, 0], [0.2, 0.2, 0.1], rtol=1e-6)


def test_spectrum_is_the_eigenvalues_of_the_kernel_on_the_data(run, data):
    x, _ = data
    _, rows = ask(view(run, gram=(x, "fourier")), "gram")
    kernel = np.cos(np.einsum("ijd,kd->ijk", x[:, None] - x, run.omega[0, 4].to_numpy())).mean(-1)
    np.testing.assert_allclose(rows[4], np.linalg.eigvalsh(kernel / 10)[::-1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-5)


def test_what_is_left_out_is_said_and_evenly_spaced():
    rng = np.random.default_rng(0)
    run = made(rng.normal(size=(1, 31, 40, 4)), energy=np.arange(31.0)[None])
    viewer = view(run, n_frames=11, n_particles=10, dims=(3, 1))
    assert viewer.run["caption"] == "10 of 40 particles, 11 of 31 frames (evenly spaced). Densities are of all particles."
    assert viewer.run["steps"] == list(range(0, 31, 3))
    places = spread(40, 10)
    assert places[0] == 0
    assert places[-1] == 39
    assert set(np.diff(places)) <= {4, 5}
    expected = run.omega[0, ::3].to_numpy()[:, places][..., [3, 1]]
    np.testing.assert_array_equal(ask(viewer, "positions")[1].reshape(11, 10, 2), expected.astype(np.float32))
    np.testing.assert_array_equal(np.frombuffer(viewer.energies, np.float32), np.arange(0, 31, 3))
    heights = ask(viewer, "density:radial")[1][0, 2:]
    assert np.count_nonzero(heights)
    assert viewer.run["densities"] == ["radial", "3", "1"]


def test_large_runs_travel_in_pieces_and_stay_out_of_the_page():
    run = made(np.random.default_rng(0).normal(size=(1, 40, 5000, 3)))
    viewer = view(run)
    message, rows = ask(viewer, "positions", start=5)
    assert CHUNK_BYTES <= rows.nbytes < CHUNK_BYTES + 60_001 or message["rows"] < 18
    assert sum(map(len, viewer.embedded.values())) <= EMBED_BYTES
    assert viewer.run["embedded"] == [0, 39]
    for part, held in viewer.embedded.items():
        np.testing.assert_array_equal(np.frombuffer(held, np.float32), np.concatenate([ask(viewer, part, start=k)[1][0] for k in (0, 39)]))
    assert len(view(run.isel(particle=slice(0, 100))).run["embedded"]) == 40


def test_runs_are_read_in_blocks(run, monkeypatch, tmp_path):
    start = run.omega[:, 0].to_numpy()
    stored = simulate(start, H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0, store=tmp_path / "run")
    monkeypatch.setattr(sources, "BLOCK_BYTES", 5 * start[0].nbytes)
    for whole in (run, stored):
        viewer = view(whole, n_frames=13)
        places = [whole.step.to_numpy().tolist().index(step) for step in viewer.run["steps"]]
        for chain in (1, 0):
            _, rows = ask(viewer, "positions", chain=chain)
            np.testing.assert_array_equal(rows.reshape(13, 12, 3), whole.omega[chain, places].to_numpy().astype(np.float32))
            assert viewer._recording.source._loaded[1].nbytes <= sources.BLOCK_BYTES
        radii = np.linalg.norm(whole.omega[:, places], axis=-1)
        assert viewer.run["limits"]["radial"] == pytest.approx((radii.min(), radii.max()))
        np.testing.assert_array_equal(np.frombuffer(viewer.energies, np.float32)[:13], whole.energy[0, places].astype(np.float32))
        assert picture(viewer)[0] == 864


def test_a_view_keeps_no_copy_of_a_run_in_memory():
    run = made(np.random.default_rng(0).normal(size=(2, 100, 5000, 3)), energy=np.zeros((2, 100)))
    tracemalloc.start()
    try:
        viewer = view(run, n_frames=100)
        ask(viewer, "positions", chain=1)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 0.8 * run.omega.nbytes
    assert most < 2 * run.omega.nbytes


def test_answers_carry_the_version_of_their_question(run):
    viewer = view(run)
    sent = []
    viewer.send = lambda message, buffers=(): sent.append(message)
    for start in (0, 21):
        viewer._answer(viewer, {"part": "positions", "chain": 0, "start": start, "version": "old"}, None)
    assert [message["version"] for message in sent] == ["old", "old"]
    assert "error" in sent[1]


def test_questions_that_make_no_sense_are_answered_by_an_error(run):
    viewer = view(run)
    for question in ({"part": "nothing"}, {"chain": 2}, {"start": 21}, {"start": None}):
        message, rows = ask(viewer, **({"part": "positions"} | question))
        assert message["error"].startswith("ValueError")
        assert rows is None


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 1, 3), (1, 5, 1, 1), (2, 3, 4, 1), (1, 3, 4, 2)])
def test_one_particle_one_frame_one_chain_and_every_dimension(shape):
    omega = np.random.default_rng(0).normal(size=shape)
    viewer = view(made(omega, energy=np.zeros(shape[:2])), colours={"trap": Quadratic(1.0)})
    for part in viewer._recording.parts:
        message, rows = ask(viewer, part, chain=shape[0] - 1)
        assert message["rows"] == shape[1]
        assert np.isfinite(rows).all() or (part == "colour:speed" and shape[1] == 1)
    low, high = viewer.run["limits"]["0"]
    assert low < high
    assert picture(viewer)[0] == 864


def test_empty_runs_and_what_is_no_run_are_refused(run):
    for nothing in (run.isel(step=[]), run.isel(particle=[]), run.isel(chain=[]), run.drop_vars("omega"), 3, None):
        with pytest.raises(ValueError, match="dataset"):
            view(nothing)


def test_values_that_are_not_finite():
    omega = np.random.default_rng(0).normal(size=(1, 4, 6, 2))
    omega[0, 1, :2], omega[0, 2] = np.nan, np.inf
    energy = np.array([[0.0, np.nan, np.inf, 1.0]])
    viewer = view(made(omega, energy=energy), colours={"trap": Quadratic(1.0), "pairs": Riesz(1, 1.0)}, gram=(np.eye(2), "fourier"))
    finite = omega[np.isfinite(omega).all(-1)]
    assert viewer.run["limits"]["0"] == pytest.approx((finite[:, 0].min(), finite[:, 0].max()))
    np.testing.assert_array_equal(np.frombuffer(viewer.energies, np.float32), energy[0].astype(np.float32))
    trap, pairs, gram = (ask(viewer, part)[1] for part in ("colour:trap", "colour:pairs", "gram"))
    np.testing.assert_allclose(trap[1, 2:], (omega[0, 1, 2:] ** 2).sum(-1) / 2, rtol=1e-6)
    assert np.isnan(trap[1, :2]).all()
    assert np.isnan(pairs[1:3]).all()
    assert np.isfinite(pairs[[0, 3]]).all()
    assert np.isnan(gram[1:3]).all()
    assert np.isfinite(gram[[0, 3]]).all()
    density = ask(viewer, "density:radial")[1]
    assert np.isfinite(density).all()
    assert (density[2, 2:] == 0).all()
    for frame, width in ((1, 864), (2, 288), (3, 864)):
        viewer.frame = frame
        assert picture(viewer)[0] == width


def test_theory_is_kept_and_its_gaps_are_marked(run):
    r = np.linspace(0, 1, 4)
    viewer = view(run, theory={"radial": (r, [0, 1, np.inf, np.nan]), 1: (r, r)})
    assert viewer.run["theory"] == {"radial": [r.tolist(), [0.0, 1.0, None, None]], "1": [r.tolist(), r.tolist()]}
    assert picture(viewer)[0] == 864


BAD = [
    ({"dims": (0, 0)}, "dims"),
    ({"dims": (0, 3)}, "dims"),
    ({"dims": 1}, "dims"),
    ({"dims": ()}, "dims"),
    ({"dims": ([0],)}, "dims"),
    ({"colours": [1]}, "colours"),
    ({"colours": {"speed": np.zeros(12)}}, "colours"),
    ({"colours": {"": np.zeros(12)}}, "colours"),
    ({"colours": {"c": np.zeros(11)}}, r"colours\['c'\]"),
    ({"colours": {"c": "energy"}}, r"colours\['c'\]"),
    ({"colours": {"c": np.zeros((2, 20, 12))}}, r"colours\['c'\]"),
    ({"colours": {"c": xr.DataArray(np.zeros(12), dims="x")}}, r"colours\['c'\]"),
    ({"theory": {0: (np.zeros(2), np.zeros(2)), "0": (np.zeros(2), np.zeros(2))}}, "theory must name"),
    ({"theory": {"gram": (np.zeros(2), np.zeros(2))}}, "theory"),
    ({"theory": {"radius": (np.zeros(2), np.zeros(2))}}, "theory"),
    ({"theory": {"radial": np.zeros(2)}}, "theory"),
    ({"theory": {"radial": (np.zeros(2), np.zeros(3))}}, "theory"),
    ({"gram": np.zeros((3, 3))}, "gram"),
    ({"gram": (np.zeros((1, 3)), "fourier")}, "gram"),
    ({"gram": (np.zeros((257, 3)), "fourier")}, "gram"),
    ({"gram": (np.zeros((4, 3)), "no feature")}, "feature"),
    ({"gram": (np.zeros((4, 2)), "fourier")}, "omega"),
    ({"n_frames": 0}, "n_frames"),
    ({"n_particles": 2.5}, "n_particles"),
    ({"height": 10}, "height"),
]


@pytest.mark.parametrize(("arguments", "name"), BAD)
def test_bad_arguments_are_named(run, arguments, name):
    with pytest.raises(ValueError, match=name):
        view(run, **arguments)


def test_energies_that_no_particle_has_or_that_cost_too_much_are_refused(run, data):
    from particles import CentredAlignment

    with pytest.raises(ValueError, match="bodies"):
        view(run, colours={"c": CentredAlignment(*data, "fourier")})
    many = made(np.random.default_rng(0).normal(size=(1, 600, 700, 2)))
    with pytest.raises(ValueError, match="pairs"):
        view(many, colours={"c": Riesz(0, 1.0)})
    view(many, colours={"c": Riesz(0, 1.0)}, n_frames=5)
    view(many, colours={"c": External(lambda w: (w**2).sum(-1), name="square")})


def test_frame_chain_colour_and_densities_can_be_set_to_what_is_there(run):
    viewer = view(run, colours={"trap": Quadratic(1.0)})
    viewer.frame, viewer.chain, viewer.colour, viewer.density, viewer.marginal = 4, 1, "trap", "0", "2"
    for name, value in {"frame": 21, "chain": -1, "colour": "grip", "density": "3", "marginal": "first"}.items():
        with pytest.raises(ValueError, match=name):
            setattr(viewer, name, value)
    assert (viewer.frame, viewer.chain, viewer.colour) == (4, 1, "trap")


def test_a_live_view_shows_frames_at_its_rate_the_last_one_and_says_so(run):
    live = live_view(rate=1e-3, colours={"trap": Quadratic(1.0)})
    assert picture(live)[0] == 288
    assert repr(live) == "LiveViewer: no frame yet"
    assert ask(live, "positions")[0]["error"] == "ValueError: there is no frame yet"
    same = simulate(run.omega[:, 0].to_numpy(), H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0, callback=live)
    assert live.run["live"]
    assert live.run["steps"] == [0]
    live.finish()
    assert not live.run["live"]
    assert live.run["steps"] == [0, 40]
    assert live.run["caption"] == "12 particles, 2 of 21 frames, 2 chains (the others came too fast or were let go)."
    rows = ask(live, "positions", chain=1)[1].reshape(2, 12, 3)
    np.testing.assert_array_equal(rows, same.omega[1, [0, -1]].to_numpy().astype(np.float32))
    sent = np.frombuffer(live.energies, np.float32).reshape(3, 2, 2)
    np.testing.assert_array_equal(sent[0], same.energy[:, [0, -1]].to_numpy().astype(np.float32))
    assert ask(live, "colour:trap")[1].shape == (2, 12)
    assert picture(live)[0] == 864


def test_a_live_view_keeps_every_second_frame_when_there_are_too_many(run):
    live = live_view(rate=1e9, n_frames=8)
    simulate(run.omega[0, 0].to_numpy(), H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0, callback=live)
    live.finish()
    assert len(live.run["steps"]) <= 8
    assert live.run["steps"][-1] == 40
    assert live.run["version"] > 0
    assert live.run["caption"].startswith(f"12 particles, {len(live.run['steps'])} of 21 frames")


def test_a_live_view_of_many_particles_keeps_fewer_frames(monkeypatch):
    monkeypatch.setattr(sources, "KEPT_BYTES", 5 * 8 * (100 * 2 + 1))
    live = live_view(rate=1e9)
    for step in range(20):
        live(step, {"omega": np.full((1, 100, 2), float(step)), "energy": np.zeros(1)})
    assert 2 <= len(live.run["steps"]) <= 5
    assert live.run["steps"][-1] == 19


def test_a_frame_that_is_let_go_is_shown_no_longer():
    live = live_view(rate=1e9, n_frames=4)
    for step in range(4):
        live(step, {"omega": np.full((1, 3, 2), float(step)), "energy": np.zeros(1)})
    live.frame = 3
    live(4, {"omega": np.full((1, 3, 2), 4.0), "energy": np.zeros(1)})
    assert live.run["steps"] == [0, 2, 4]
    assert live.frame == 2
    assert picture(live)[0] == 864


def test_another_run_takes_the_place_of_the_one_before():
    live = live_view(rate=1e9)
    sampler = Langevin(0.02, 5.0)
    simulate(Ball(1.0, 3).sample(8, 0).reshape(2, 4, 3), H, Ball(1.5, 3), sampler, n_steps=4, rng=0, callback=live)
    live.finish()
    live.chain, live.density, live.marginal, live.stopped = 1, "2", "2", True
    version = live.run["version"]
    run = simulate(np.zeros((5, 2)), Quadratic(1.0), FullSpace(2), sampler, n_steps=6, rng=0, callback=live)
    live.finish()
    assert live.run["steps"] == run.step.to_numpy().tolist() == list(range(7))
    assert live.run["caption"] == "5 particles, 7 frames."
    assert live.run["version"] > version
    assert (live.frame, live.chain, live.density, live.marginal, live.stopped) == (6, 0, "radial", "0", False)
    np.testing.assert_array_equal(ask(live, "positions")[1].reshape(7, 5, 2), run.omega[0].astype(np.float32))


def test_a_live_view_outside_a_notebook_lets_the_run_be(run):
    def careless(step, frame):
        live(step, frame)
        if step == 6:
            raise RuntimeError("elsewhere")

    live, start = live_view(), run.omega[0, 0].to_numpy()
    with pytest.raises(RuntimeError, match="elsewhere"):
        simulate(start, H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0, callback=careless)
    assert repr(live).startswith("LiveViewer: 12 particles")
    live.finish()
    assert live.run["steps"][-1] == 6


def test_a_live_view_pushes_the_parts_that_are_looked_at(run):
    live, sent = live_view(rate=1e9), []
    live.send = lambda message, buffers=(): sent.append(message)
    frame = {"omega": run.omega[:, 0].to_numpy(), "energy": np.zeros(2)}
    live(0, frame)
    live.colour, live.chain = "speed", 1
    live(1, frame)
    assert {message["part"] for message in sent} == {"positions", "density:radial", "density:0", "colour:speed"}
    assert {(message["chain"], message["start"]) for message in sent} == {(1, 1)}


def test_stop_ends_the_run_at_its_next_frame(run):
    live = live_view()

    def press(step, frame):
        if step == 10:
            live._answer(live, {"stop": True}, None)
        return live(step, frame)

    start = run.omega[0, 0].to_numpy()
    ended = simulate(start, H, Ball(1.5, 3), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0, callback=press)
    assert int(ended.step[-1]) == 10


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"rate": 0}, "rate"), ({"domain": 3}, "domain"), ({"dims": 1}, "dims"), ({"gram": (3, "fourier")}, "gram")],
)
def test_bad_arguments_of_a_live_view_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        live_view(**arguments)


def test_exported_pages_show_the_picture(run):
    nbconvert, nbformat = pytest.importorskip("nbconvert"), pytest.importorskip("nbformat")
    bundle = view(run)._repr_mimebundle_()[0]
    output = nbformat.v4.new_output("execute_result", bundle, execution_count=1)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("view(run)", outputs=[output], execution_count=1)])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(book)
    assert f"data:image/png;base64,{bundle['image/png'][:60]}" in page


def test_the_scripts_are_one_module_without_addresses():
    folder = resources.files("particles.viewer")
    files = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir() if item.name.endswith((".js", ".css"))}
    assert set(files) == {"store.js", "canvas.js", "discs.js", "scene.js", "panels.js", "page.js", "viewer.css"}
    for text in files.values():
        assert "http" not in text
        assert "import " not in text.replace("important", "")
    assert sum(text.count("export default") for text in files.values()) == 1


@pytest.mark.slow
def test_the_wheel_holds_the_scripts(tmp_path):
    import zipfile

    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {str(path.relative_to(ROOT)) for pattern in ("*.js", "*.css") for path in (ROOT / "particles" / "viewer").glob(pattern)}
    assert len(shipped) == 7
    assert shipped <= names


def test_particles_and_its_viewer_load_no_widgets_before_one_is_asked_for():
    code = (
        "import particles, particles.viewer, sys; print(sorted({'anywidget', 'ipywidgets', 'matplotlib'} & set(sys.modules))); "
        "sys.modules['anywidget'] = None\n"
        "try: particles.viewer.view\n"
        "except ImportError as error: print(error)\n"
        "try: particles.viewer.nothing\n"
        "except AttributeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        'particles.viewer needs anywidget: pip install "kernelgas[notebook]"',
        "module 'particles.viewer' has no attribute 'nothing'",
    ]


def test_browser_tests_wait_to_be_asked_for():
    file = ROOT / "tests" / "browser" / "conftest.py"
    spec = importlib.util.spec_from_file_location("browser_conftest", file)
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    test = file.with_name("test_viewer.py")
    for named, ignored in ((str(ROOT / "tests"), True), (str(file.parent), None), (f"{test}::test_keys", None), (str(ROOT), True)):
        assert conftest.pytest_ignore_collect(test, types.SimpleNamespace(args=[named])) is ignored


def test_one_coordinate_is_drawn_against_the_particle_number():
    run = simulate(np.linspace(-1, 1, 5)[:, None], Quadratic(1.0), FullSpace(1), Langevin(0.02, 5.0), n_steps=4, rng=0)
    viewer = view(run)
    assert viewer.run["dims"] == [0]
    assert viewer.run["energies"] == ["energy"]
    np.testing.assert_array_equal(ask(viewer, "positions")[1], run.omega[0, :, :, 0].to_numpy().astype(np.float32))
