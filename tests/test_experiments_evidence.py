"""The page of evidence: from planted results every verdict, what did not run with its command, and nothing loaded from elsewhere."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr

from experiments import cli, coulomb_synthetic, evidence, evidence_page, long_range, units
from experiments.claims import CLAIMS, INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED, VERDICTS, Results, judge
from experiments.claims.claim import Region

PAPERS = list(CLAIMS)
SYNTHETIC = "coulomb_synthetic"


def planted(root, config, score, *, only=lambda unit: True):
    """Write the units of the synthetic benchmark with accuracies score(unit) into a folder."""
    store = units.Store(root, SYNTHETIC, units.settings(coulomb_synthetic, config))
    for unit in filter(only, coulomb_synthetic.units(config)):
        noise = np.random.default_rng([unit["seed"], len(str(unit))]).normal(0, 0.0005)
        value = min(max(score(unit) + noise, 0.0), 1.0)
        store.append(units.record(unit, {"accuracy": value, "f1": value, "fresh_accuracy": value, "seconds": 1.0}, 1.0))


def best_possible(unit):
    """Particles beat random features, and lose to importance sampling; nothing works in noise alone."""
    quality = {"rff": 0.7, "paper": 0.75, "importance": 0.85, "svm tuned": 0.9}.get(unit.get("method", ""), 0.6)
    return 0.5 + (quality - 0.5) * (unit["sigma"] < 100)


NOISE = coulomb_synthetic.Config(n_seeds=5, sigmas=(0.001, 1.0, 1e4))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Two settings of one part, one of them half finished and one of them of a single seed, and a smoke run."""
    root = tmp_path_factory.mktemp("results")
    planted(root, NOISE, best_possible, only=lambda unit: unit["seed"] < 46)
    single = coulomb_synthetic.Config(part="lambda", n_seeds=1, sigmas=(1.0,))
    planted(root, single, lambda unit: 0.6 + 0.1 * (unit["lambda"] > 0))
    smoke = coulomb_synthetic.PRESETS["smoke"]
    planted(root, smoke, lambda unit: 0.9)
    return evidence.gather("Planted results", [units.saved(root)])


@pytest.fixture(scope="module")
def folder(found, tmp_path_factory):
    return evidence_page.write(found, tmp_path_factory.mktemp("page"))


def verdicts(found):
    return {row.claim.name: row.verdict for rows in found.outcomes.values() for row in rows}


def test_every_verdict_occurs(found):
    said = verdicts(found)
    assert said["the paper's particles beat random features"] == REPRODUCED
    assert said["the paper's particles beat importance sampling"] == NOT_REPRODUCED
    assert said["repulsion 0.5 against none"] == INCONCLUSIVE  # one seed
    assert said["no method matters at noise of 1000"] == REPRODUCED
    assert said["K-elu beats V-elu on SST-2"] == NOT_RUN


def test_what_did_not_run_stands_there_with_its_command(found, folder):
    page, text = ((folder / name).read_text() for name in ("index.html", "report.md"))
    for document in (page, text):
        assert "kernelgas run sentence_classification --preset cpu" in document
        assert "kernelgas run vision --preset paper" in document
    n = sum(row.verdict == NOT_RUN for rows in found.outcomes.values() for row in rows)
    assert page.count("<tr class='never'>") == text.count("| **not run** |") == n


def test_a_half_finished_grid_says_how_many_units(found, folder):
    part = next(part for part in found.parts if part.label.startswith("cpu") and part.settings["part"] == "noise")
    n = len(list(coulomb_synthetic.units(coulomb_synthetic.PRESETS["cpu"])))
    planned = {units.key(unit) for unit in coulomb_synthetic.units(coulomb_synthetic.PRESETS["cpu"])}
    ran = [unit for unit in coulomb_synthetic.units(NOISE) if unit["seed"] < 46]
    expected = sum(units.key(unit) in planned for unit in ran)
    assert (part.coverage.planned, part.coverage.finished, part.coverage.others) == (n, expected, len(ran) - expected)
    assert len(part.coverage.missing) == n - expected
    assert part.coverage.seconds == len(ran)
    assert f"{expected} of {n} planned units ran" in (folder / "index.html").read_text()


def test_settings_are_kept_apart_and_smoke_is_no_evidence(found):
    labels = {part.label for part in found.parts}
    assert labels == {"cpu", "cpu, part=lambda", "smoke"}
    said = {row.label for rows in found.outcomes.values() for row in rows if row.finding}
    assert said == {"cpu", "cpu, part=lambda"}


def test_one_setting_in_two_folders_is_refused(tmp_path):
    for name in ("a", "b"):
        planted(tmp_path / name, coulomb_synthetic.PRESETS["smoke"], best_possible)
    with pytest.raises(ValueError, match="results must hold each experiment with one setting once"):
        evidence.gather("", [units.saved(tmp_path / name) for name in ("a", "b")])


class Loads(HTMLParser):
    """Collects what a page would load and whether its elements are closed."""

    def __init__(self):
        super().__init__()
        self.loads, self.ids, self.links, self.stack, self.images = [], set(), [], [], 0

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id"))
        self.images += tag == "img"
        self.loads += [value for name, value in attrs if name in ("src", "srcset", "data", "action") and not value.startswith("data:")]
        if tag in ("link", "script", "iframe", "object", "embed"):
            self.loads.append(tag)
        if tag == "a":
            self.links.append(given["href"])
        if tag not in ("meta", "img", "input", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_the_page_loads_nothing_and_its_links_lead_somewhere(folder):
    text = (folder / "index.html").read_text()
    page = Loads()
    page.feed(text)
    assert page.loads == []
    assert not re.search(r"url\(|@import|https?://", re.sub(r"<pre>.*?</pre>", "", text, flags=re.S))
    assert page.stack == []
    assert {link.removeprefix("#") for link in page.links} <= page.ids
    assert page.images == len(list((folder / "figures").glob("*.png"))) == 3


def test_markdown_tables_are_whole(folder):
    text = (folder / "report.md").read_text()
    tables = re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.M)
    assert len(tables) > 10
    for table in tables:
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.strip().splitlines()}
        assert len(widths) == 1, table
    for link in re.findall(r"\]\((figures/[^)]*)\)", text):
        assert (folder / link).exists()


def test_text_is_escaped(found, tmp_path):
    odd = evidence.Evidence("a < b & c", {}, [])
    page = (evidence_page.write(odd, tmp_path) / "index.html").read_text()
    assert "a &lt; b &amp; c" in page


def test_a_section_that_fails_says_so_and_does_not_stop_the_page(monkeypatch, tmp_path):
    planted(tmp_path, coulomb_synthetic.PRESETS["smoke"], best_possible)
    monkeypatch.setattr(coulomb_synthetic, "figures", lambda ds: 1 / 0)
    part = evidence.gather("", [units.saved(tmp_path)]).parts[0]
    assert "figures could not be drawn from these results: ZeroDivisionError" in part.section.text
    assert part.figures == {}
    monkeypatch.setattr(coulomb_synthetic, "section", lambda ds: ds["nothing"])
    part = evidence.gather("", [units.saved(tmp_path)]).parts[0]
    assert "could not be made from these results: KeyError" in part.section.text


def test_the_command_writes_both_files(tmp_path, capsys):
    planted(tmp_path / "units", coulomb_synthetic.PRESETS["smoke"], best_possible)
    evidence.main(evidence.Config(results=(str(tmp_path / "units"),), out=str(tmp_path / "page")))
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"index.html", "report.md", "figures"}
    said = capsys.readouterr()
    assert "not run" in said.out
    assert "no claim is judged by results of the preset smoke, here of coulomb_synthetic" in said.err
    (tmp_path / "nothing").mkdir()
    evidence.main(evidence.Config(results=(str(tmp_path / "nothing"),), out=str(tmp_path / "page")))
    assert "no finished units in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [({"results": ()}, "results must name a folder at least"), ({"results": ("/nowhere",)}, "results must be folders, got '/nowhere'")],
)
def test_impossible_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        evidence.Config(**options)


# ---- the claims themselves ---------------------------------------------------------------------------------------------------------------

ALL = [claim for claims in CLAIMS.values() for claim in claims]


def test_claims_have_names_of_their_own():
    names = [claim.name for claim in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_say_what_where_and_how(paper):
    for claim in CLAIMS[paper]:
        assert claim.says
        assert claim.paper
        assert claim.source
        assert claim.how_to_run().startswith("kernelgas run ")
        assert isinstance(claim.region, Region)
        low, high = claim.region.claimed
        assert low < high


PARTS = {  # what an experiment can be asked for besides its presets
    "coulomb_synthetic": [{"part": part} for part in ("noise", "lambda", "budget", "runtime")],
    "sentence_classification": [{"part": "main"}, {"part": "ablations"}],
}

ELSEWHERE = {"imagenet", "coco", "ade20k"}  # tasks for which nobody here has the data


def planned_results(name):
    """Results with made-up numbers in every unit that the presets cpu and paper plan, whatever the score."""
    module = importlib.import_module(f"experiments.{name}")
    presets = [module.PRESETS[preset] for preset in ("cpu", "paper") if preset in module.PRESETS]
    configs = [dataclasses.replace(preset, **changes) for preset in presets for changes in PARTS.get(name, [{}])]
    together = {}  # configs of the same settings share a file
    for config in configs:
        together.setdefault(json.dumps(units.settings(module, config)), []).append(config)
    return [Results(text, json.loads(text), made_up(module, same)) for text, same in together.items()]


def made_up(module, configs):
    """A Dataset over the planned coordinates."""
    planned, rng = [unit for config in configs for unit in module.units(config)], np.random.default_rng(0)
    coords = {dim: list(dict.fromkeys(unit[dim] for unit in planned)) for dim in planned[0]}
    known = {
        "n": getattr(configs[0], "sizes", ()),
        "row": list(getattr(module, "ROWS", ())),
        "step_size": getattr(configs[0], "step_sizes", ()),
    }
    known |= {"law": getattr(module, "LAWS", ())}
    known |= {"tail": (1,), "points": (1, 2, 3), "stage": (1, 2), "model": list(getattr(module, "MODELS", ())), "length": (1, 2, 3)}
    arrays = {"seconds": ("row",), **module.ARRAYS}
    ds = xr.Dataset(coords=coords)
    for score in SCORES:
        extra = [dim for dim in arrays.get(score, ()) if dim not in coords and known.get(dim)]
        ds = ds.assign_coords({dim: list(known[dim]) for dim in extra if dim != "length"})
        dims = [*coords, *extra]
        ds[score] = (dims, rng.uniform(1, 2, [len(coords[dim] if dim in coords else known[dim]) for dim in dims]))
    return ds


SCORES = ("accuracy", "fresh_accuracy", "log_loss", "loss", "brier", "calibration_error", "cpu_seconds", "seconds", "memory", "score")
SCORES += (
    "perplexity",
    "share",
    "distance",
    "kernel_spread",
    "rate_ratio",
    "least_energy",
    "on_wall",
    "newton_residual",
    "extra_parameters",
)
SCORES += ("norm", "tokens", "passed", "passed_control", "validation_last")


@pytest.mark.parametrize("name", sorted({claim.experiment for claim in ALL}))
def test_claims_name_rows_that_their_experiment_plans(name):
    claims = [claim for claim in ALL if claim.experiment == name]
    outcomes = judge(claims, {name: planned_results(name)})
    lost = {row.claim.name for row in outcomes if row.finding is None}
    assert {lost_one for lost_one in lost if not set(lost_one.lower().replace(":", "").replace(",", "").split()) & ELSEWHERE} == set()


@pytest.mark.parametrize("command", sorted({claim.how_to_run() for claim in ALL}))
def test_commands_have_options_that_exist(command):
    words = command.partition(",")[0].split()
    name, preset = words[2], words[words.index("--preset") + 1]
    assert name in cli.EXPERIMENTS
    config = importlib.import_module(f"experiments.{name}").PRESETS[preset]
    given = dict(zip(words[5::2], words[6::2], strict=True))
    chosen = {option[2:]: value for option, value in given.items() if option != "--data"}
    dataclasses.replace(config, **{name: (value,) if isinstance(getattr(config, name), tuple) else value for name, value in chosen.items()})
    assert all(hasattr(config, option[2:]) for option in given)


def test_nothing_measured_means_that_nothing_ran():
    outcomes = evidence.gather("", []).outcomes
    assert [row.verdict for rows in outcomes.values() for row in rows] == [NOT_RUN] * len(ALL)
    assert set(VERDICTS) == set(evidence_page.MEANING)


def test_settings_are_shown(folder, found):
    text = (folder / "index.html").read_text()
    for part in found.parts:
        assert json.dumps(part.settings["n_features"]) in text


@pytest.mark.parametrize("main", [False, True])
def test_a_search_for_learning_rates_is_named_so_and_counts_against_no_table(tmp_path, main):
    settings = units.settings(long_range, long_range.PRESETS["cpu"])
    store = units.Store(tmp_path, "long_range", settings)
    planned = list(long_range.units(long_range.PRESETS["cpu"]))
    rates = [{**planned[0], "row": f"softmax, lr {rate:g}", "seed": 1000} for rate in (0.001, 0.003)]
    for unit in rates + planned[: 3 * main]:
        store.append(units.record(unit, {"accuracy": 0.5}, 1.0))
    part = evidence.gather("", [units.saved(tmp_path)]).parts[0]
    assert (part.coverage.finished, part.coverage.searched, part.coverage.others) == (3 * main, 2, 0)
    assert evidence_page._title(part).startswith(f"{part.section.title}{'' if main else ', search for learning rates'} (long_range")
    said = evidence_page._ran(part.coverage)
    assert said.startswith(f"3 of {len(planned)} planned units ran, and 2 units of a search" if main else "2 units of a search")
