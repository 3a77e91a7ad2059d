"""Generated Pathfinder images: labels by a flood of a fine drawing, and nothing else that tells them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from experiments.data import Pathfinder, load
from experiments.data.pathfinder import LEVELS, draw, laid_out, pathfinder

EASY, HARD = Pathfinder(contour=LEVELS["easy"]), Pathfinder()
SCALE = 6  # pixels of the fine drawing in one of the image
LINK = 1.3  # dashes so far apart, in pixels of the image, are of one contour: more than the gap, less than the clearance


def centres(image: np.ndarray, bare: np.ndarray) -> np.ndarray:
    """Places of the two discs: the full disc fits nowhere else."""
    disc = np.hypot(*np.mgrid[-8:9, -8:9]) <= HARD.marker * SCALE - 2
    inside = ndimage.binary_erosion(image == 255, disc)
    pieces, n = ndimage.label(inside)
    assert n == 2, "two discs"
    assert (image != bare).any()
    return np.array(ndimage.center_of_mass(inside, pieces, [1, 2]))


def connected(image: np.ndarray, bare: np.ndarray) -> bool:
    """Whether a flood over gaps shorter than LINK leads from the ink under one disc to that under the other."""
    radius = LINK / 2 * SCALE
    ball = np.hypot(*np.mgrid[-int(radius) : int(radius) + 1, -int(radius) : int(radius) + 1]) <= radius
    pieces, _ = ndimage.label(ndimage.binary_dilation(bare > 0, ball))
    distance, (row, column) = ndimage.distance_transform_edt(bare == 0, return_indices=True)
    found = []
    for place in np.rint(centres(image, bare)).astype(int):
        assert distance[tuple(place)] < 0.5 * SCALE, "a disc lies on the end of a contour"
        found.append(pieces[row[tuple(place)], column[tuple(place)]])
    return found[0] == found[1]


def fine(rule: Pathfinder, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    image, label = draw(rule, 0, "train", k, scale=SCALE)
    return image, draw(rule, 0, "train", k, scale=SCALE, discs=False)[0], label


@pytest.mark.parametrize("rule", [EASY, HARD], ids=["easy", "hard"])
def test_the_label_says_whether_the_discs_are_connected(rule):
    labels = []
    for k in range(20):
        image, bare, label = fine(rule, k)
        assert connected(image, bare) == bool(label)
        labels.append(label)
    assert {0, 1} == set(labels)


def test_the_flood_sees_a_wrong_label():
    """One disc moved to the other contour changes what the flood finds."""
    verdicts = set()
    for k in range(10):
        image, bare, _ = fine(EASY, k)
        verdicts.add(connected(image, bare))
    assert verdicts == {True, False}


def test_there_are_as_many_contours_as_published():
    """Two long ones, and distractors of a third of the length with about 20 dashes in all."""
    assert {level: Pathfinder(contour=length).distractors for level, length in LEVELS.items()} == {
        "easy": (10, 2), "intermediate": (6, 3), "hard": (5, 4),
    }  # fmt: skip
    _, bare, _ = fine(HARD, 0)
    radius = int(LINK / 2 * SCALE)
    ball = np.hypot(*np.mgrid[-radius : radius + 1, -radius : radius + 1]) <= LINK / 2 * SCALE
    _, n_contours = ndimage.label(ndimage.binary_dilation(bare > 0, ball))
    _, n_dashes = ndimage.label(bare > 0, np.ones((3, 3)))
    assert (n_contours, n_dashes) == (2 + 5, 2 * 14 + 5 * 4)


def simple_statistics(images: np.ndarray) -> np.ndarray:
    """What a shortcut could use: mean, inked pixels, bright pixels, spread, and the two moments of where the ink is."""
    flat = images.reshape(len(images), -1) / 255
    rows, columns = flat.reshape(images.shape).sum(2), flat.reshape(images.shape).sum(1)
    place = np.arange(images.shape[1])
    return np.column_stack([flat.mean(1), (flat > 0).mean(1), (flat == 1).sum(1), flat.std(1), rows @ place, columns @ place])


def area(features: np.ndarray, labels: np.ndarray) -> float:
    """Held-out area under the curve of a logistic regression."""
    half = len(labels) // 2
    scaled = (features - features[:half].mean(0)) / (features[:half].std(0) + 1e-12)
    model = LogisticRegression().fit(scaled[:half], labels[:half])
    return roc_auc_score(labels[half:], model.predict_proba(scaled[half:])[:, 1])


def test_simple_statistics_do_not_tell_the_label():
    n = 800
    made = pathfinder(EASY, {"train": n, "validation": 1, "test": 1}, 0).parts["train"]
    error = np.sqrt((n / 2 + 1) / (12 * (n / 4) ** 2))  # standard error of the area at chance
    assert abs(made.labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert abs(area(simple_statistics(made.items), made.labels) - 0.5) < 4 * error


def test_a_leak_would_be_seen():
    """The control of the test above: images of the label 1 a little brighter."""
    made = pathfinder(EASY, {"train": 300, "validation": 1, "test": 1}, 0).parts["train"]
    leaking = made.items * np.where(made.labels == 1, 1.0, 0.9)[:, None, None]
    assert area(simple_statistics(leaking), made.labels) > 0.7


def disc_statistics(rule: Pathfinder, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the discs, its square, where they lie, how far from the middle; and the labels."""
    found = [laid_out(rule, 0, "train", k) for k in range(n)]
    places, labels = np.array([places for _, _, places, _ in found]), np.array([label for _, _, _, label in found])
    distance = np.hypot(*(places[:, 0] - places[:, 1]).T)
    middle = np.sort(np.hypot(*(places - rule.size / 2).transpose(2, 0, 1)), axis=1)
    return np.column_stack([distance, distance**2, np.sort(places, axis=1).reshape(n, 4), middle]), labels


def test_the_places_of_the_discs_do_not_tell_the_label():
    n = 800
    error = np.sqrt((n / 2 + 1) / (12 * (n / 4) ** 2))
    assert abs(area(*disc_statistics(EASY, n)) - 0.5) < 4 * error


def test_the_distance_of_the_discs_would_tell_it_without_balance():
    """The control of the test above: ends of one contour are closer than ends of two where nothing balances them."""
    assert area(*disc_statistics(dataclasses.replace(EASY, balance=9.0), 600)) > 0.6


def test_an_image_is_a_function_of_seed_part_and_number():
    made = pathfinder(EASY, {"train": 5, "validation": 5, "test": 5}, 0)
    again = pathfinder(EASY, {"train": 2, "validation": 1, "test": 1}, 0)
    np.testing.assert_array_equal(again.parts["train"].items, made.parts["train"].items[:2])
    images = [image.tobytes() for part in made.parts.values() for image in part.items]
    assert len(set(images)) == 15
    assert made.sha256 != pathfinder(EASY, {"train": 5, "validation": 5, "test": 5}, 1).sha256


def test_pathfinder_loads_as_pixels_or_patches():
    sizes = {"max_train": 8, "max_validation": 2, "max_test": 4}
    pixels = load("pathfinder", rule=EASY, **sizes)
    assert (pixels.train.tokens.shape, pixels.vocab_size, pixels.input_dim, pixels.n_classes) == ((8, 1024), 256, None, 2)
    assert pixels.source.startswith("pixels of images generated by version")
    small = load("pathfinder", rule=EASY, pool=2, **sizes)
    assert small.train.tokens.shape == (8, 256)
    assert load("pathfinder", rule=EASY, tokeniser="patches", **sizes).train.tokens.shape == (8, 64, 16)


@pytest.mark.slow
def test_statistics_of_the_hard_level():
    n = 2_000
    made = pathfinder(HARD, {"train": n, "validation": 1, "test": 1}, 0).parts["train"]
    error = np.sqrt((n / 2 + 1) / (12 * (n / 4) ** 2))
    assert abs(made.labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert abs(area(simple_statistics(made.items), made.labels) - 0.5) < 4 * error
    assert abs(area(*disc_statistics(HARD, n)) - 0.5) < 4 * error
    for k in range(100):
        image, bare, label = fine(HARD, k)
        assert connected(image, bare) == bool(label)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contour": 2}, "contour must be an integer of at least 3, got 2"),
        ({"turn": 0.0}, "turn must be positive"),
        ({"clearance": 1.5}, r"clearance must exceed gap \+ thickness, 1.5, got 1.5"),
    ],
)
def test_impossible_rules(change, message):
    with pytest.raises(ValueError, match=message):
        Pathfinder(**change)


def test_contours_without_room_end_with_an_error(monkeypatch):
    monkeypatch.setattr("experiments.data.pathfinder.TRIES", 10)
    with pytest.raises(ValueError, match="found no room"):
        draw(Pathfinder(contour=60), 0, "train", 0)
