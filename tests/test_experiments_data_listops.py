"""Generated ListOps: values by an independent evaluator, the shape of the trees, streams by seed, part and number."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import chisquare

from experiments.data import PAD, ListOps, load
from experiments.data.listops import OPERATORS, TOKENS, listops, spelled

SMALL = ListOps(min_length=50, max_length=200, max_depth=6)
SIZES = {"train": 600, "validation": 50, "test": 50}


@pytest.fixture(scope="module")
def made():
    return listops(SMALL, SIZES, 0)


def parse(words: list[str]):
    """A nested list (operator, members) from words, consumed from the front."""
    word = words.pop(0)
    if not word.startswith("["):
        return int(word)
    members = []
    while words[0] != "]":
        members.append(parse(words))
    words.pop(0)
    return word, members


def value(tree) -> int:
    if isinstance(tree, int):
        return tree
    found = [value(member) for member in tree[1]]
    return {"[MIN": min(found), "[MAX": max(found), "[MED": int(np.median(found)), "[SM": sum(found) % 10}[tree[0]]


def lists(tree) -> list:
    return [] if isinstance(tree, int) else [tree, *(inner for member in tree[1] for inner in lists(member))]


def depth(tree) -> int:
    return 1 if isinstance(tree, int) else 1 + max(map(depth, tree[1]))


def members(tree, level: int = 1):
    """(depth, is a list) of every node but the root."""
    if not isinstance(tree, int):
        for member in tree[1]:
            yield level + 1, not isinstance(member, int)
            yield from members(member, level + 1)


def trees(split) -> list:
    return [parse(spelled(row).split()) for row in split.tokens]


def test_the_evaluator_of_the_test_knows_the_published_example():
    assert value(parse(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"])) == 9
    assert value(parse(["[MED", "1", "2", "4", "8", "]"])) == 3
    assert value(parse(["[SM", "9", "[MED", "7", "8", "]", "]"])) == 6


def test_labels_are_the_values_of_the_trees(made):
    assert [value(tree) for tree in trees(made.train)] == made.train.labels.tolist()


def test_the_check_sees_a_wrong_label(made):
    tokens = made.train.tokens.copy()
    tokens[:, 0] = np.where(tokens[:, 0] == TOKENS.index("[MIN"), TOKENS.index("[MAX"), TOKENS.index("[MIN"))
    changed = [value(parse(spelled(row).split())) for row in tokens]
    assert np.mean(np.array(changed) != made.train.labels) > 0.5


def test_lengths_depths_and_members_stay_within_bounds(made):
    lengths = made.train.lengths()
    assert SMALL.min_length < lengths.min()
    assert lengths.max() < SMALL.max_length
    np.testing.assert_array_equal(made.train.key_mask, made.train.tokens != PAD)
    sizes = [len(node[1]) for tree in trees(made.train) for node in lists(tree)]
    assert (min(sizes), max(sizes)) == (2, SMALL.max_args)
    assert max(depth(tree) for tree in trees(made.train)) == SMALL.max_depth
    assert (made.vocab_size, made.n_classes, made.max_length) == (len(TOKENS), 10, SMALL.max_length)


def test_operators_and_digits_are_all_as_frequent(made):
    text = " ".join(spelled(row) for row in made.train.tokens)
    counts = [text.count(operator) for operator in OPERATORS]
    assert chisquare(counts).pvalue > 1e-3
    digits = [len(re.findall(rf"\b{digit}\b", text)) for digit in range(10)]
    assert chisquare(digits).pvalue > 1e-3


def test_a_node_is_a_list_with_probability_a_quarter_where_length_does_not_select():
    """Trees of all lengths but the very short: bounds so wide that they hardly select, so the rate of lists is the rate of the draw."""
    wide = listops(ListOps(min_length=3, max_length=2_000, max_depth=4), {"train": 1_500, "validation": 1, "test": 1}, 1)
    nodes = [node for tree in trees(wide.train) for node in members(tree) if node[0] < 4]
    rate = np.mean([is_list for _, is_list in nodes])
    assert abs(rate - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(nodes))


def test_a_sequence_is_a_function_of_seed_part_and_number(made):
    again = listops(SMALL, {"train": 20, "validation": 60, "test": 50}, 0)
    np.testing.assert_array_equal(again.train.tokens, made.train.tokens[:20])
    np.testing.assert_array_equal(again.validation.tokens[:50], made.validation.tokens)
    other = listops(SMALL, {"train": 20, "validation": 60, "test": 50}, 1)
    rows = [row.tobytes() for data in (made, other) for split in (data.train, data.validation, data.test) for row in split.tokens]
    assert len(set(rows)) == len(rows)
    assert made.sha256 != other.sha256
    assert again.sha256 == listops(SMALL, {"train": 20, "validation": 60, "test": 50}, 0).sha256


def test_the_published_lengths():
    data = load("listops", max_train=100, max_validation=1, max_test=1)
    lengths = data.train.lengths()
    assert lengths.min() > 500
    assert lengths.max() < 2_000
    assert data.train.tokens.shape == (100, 2_000)
    assert "ListOps(min_length=500, max_length=2000, max_depth=10, max_args=10)" in data.source


@pytest.mark.slow
def test_the_classes_are_as_skewed_as_published():
    """The most frequent value is about 17 % of the published data; 0 and 9, the values of MIN and MAX, are the frequent ones."""
    data = listops(ListOps(), {"train": 4_000, "validation": 1, "test": 1}, 3)
    share = np.bincount(data.train.labels, minlength=10) / 4_000
    assert set(np.argsort(share)[-2:]) == {0, 9}
    assert 0.15 < share.max() < 0.19
    assert share.min() > 0.06


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_length": 2}, "min_length must be an integer of at least 3, got 2"),
        ({"max_length": 500}, "max_length must be an integer of at least 502, got 500"),
        ({"max_args": 1}, "max_args must be"),
        ({"max_depth": 1}, "max_depth must be"),
        ({"max_depth": 3, "max_args": 4}, "min_length must be below 26, the length of the largest tree, got 500"),
    ],
)
def test_impossible_rules(change, message):
    with pytest.raises(ValueError, match=message):
        ListOps(**change)


def test_lengths_that_hardly_occur_end_with_an_error(monkeypatch):
    monkeypatch.setattr("experiments.data.listops.TRIES", 1_000)
    rare = ListOps(min_length=9_000, max_length=9_002, max_depth=6, max_args=10)
    with pytest.raises(ValueError, match="no tree in 1000 had a length"):
        listops(rare, {"train": 1, "validation": 1, "test": 1}, 0)
