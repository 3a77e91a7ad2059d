"""The data sets of the papers by name: their folders, files, origin, and what they are called on the Hugging Face hub.

Any other name works too, where its folder holds tables or images that can be understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCORE = "score"  # a column of numbers that takes the place of `label`: regression


@dataclass(frozen=True)
class Hub:
    """Where the Hugging Face hub has a data set: repository, configuration, its name of each part, columns of the items and the labels."""

    id: str
    config: str | None
    parts: Mapping[str, str]
    columns: tuple[str, ...]
    label: str = "label"


@dataclass(frozen=True)
class Task:
    """One named data set.

    folders: other folders that may hold it; files: the only ones to read, {name without endings: part}; layout, origin: what to place and
    where it comes from, in words.
    """

    folders: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    layout: str = ""
    origin: str = ""
    hub: Hub | None = None


THREE = {"train": "train", "validation": "validation", "test": "test"}
TWO = {"train": "train", "test": "test"}
DEV = {"train": "train", "test": "validation"}  # the published test part has no labels
GLUE = "nyu-mll/glue"
TREEBANK = "https://nlp.stanford.edu/sentiment/"
BENCHMARK = "https://gluebenchmark.com/tasks"
LONG_RANGE = "https://github.com/google-research/long-range-arena"

TASKS: dict[str, Task] = {
    "sst2": Task(  # whole sentences
        layout="sst2/sentences_{train,dev,test}.tsv.gz with the columns label, sentence",
        origin=TREEBANK,
        hub=Hub("SetFit/sst2", None, THREE, ("text",)),
    ),
    "sst2_phrases": Task(  # the training part of GLUE: every phrase of the trees
        folders=("sst2",),
        files={"phrases_train": "train", "glue_dev": "validation", "sentences_test": "test"},
        layout="sst2/{phrases_train,glue_dev,sentences_test}.tsv.gz with the columns label and phrase or sentence",
        origin=f"{BENCHMARK} and {TREEBANK}",
        hub=Hub(GLUE, "sst2", DEV, ("sentence",)),
    ),
    "sst5": Task(
        layout="sst5/{train,dev,test}.tsv.gz with the columns label, sentence",
        origin=TREEBANK,
        hub=Hub("SetFit/sst5", None, THREE, ("text",)),
    ),
    "rotten_tomatoes": Task(
        layout="rotten_tomatoes/*.tsv.gz with the columns label, split, sentence",
        origin="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        hub=Hub("cornell-movie-review-data/rotten_tomatoes", None, THREE, ("text",)),
    ),
    "qqp": Task(
        folders=("qqp_subset",),
        layout="qqp/{train,dev}.tsv.gz with the columns label, question1, question2, or qqp_subset/*.tsv.gz with a column split too",
        origin=BENCHMARK,
        hub=Hub(GLUE, "qqp", DEV, ("question1", "question2")),
    ),
    "cola": Task(
        layout="cola/{train,dev}.tsv.gz with the columns label, sentence",
        origin="https://nyu-mll.github.io/CoLA/",
        hub=Hub(GLUE, "cola", DEV, ("sentence",)),
    ),
    "mrpc": Task(
        layout="mrpc/{train,test}.tsv.gz with the columns label, sentence1, sentence2",
        origin="https://www.microsoft.com/en-us/download/details.aspx?id=52398",
        hub=Hub(GLUE, "mrpc", THREE, ("sentence1", "sentence2")),
    ),
    "rte": Task(
        files={"train": "train", "dev": "test"},
        layout="rte/{train,dev}.tsv.gz with the columns label, sentence1, sentence2",
        origin=BENCHMARK,
        hub=Hub(GLUE, "rte", DEV, ("sentence1", "sentence2")),
    ),
    "stsb": Task(
        layout="stsb/{train,dev,test}.tsv.gz with the columns score, sentence1, sentence2",
        origin="https://ixa2.si.ehu.eus/stswiki/index.php/STSbenchmark",
        hub=Hub("mteb/stsbenchmark-sts", None, THREE, ("sentence1", "sentence2"), SCORE),
    ),
    "trec": Task(
        layout="trec/{train,test}.tsv.gz with the columns label, question",
        origin="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
    ),
    "subj": Task(
        layout="subj/*.tsv.gz with the columns label, sentence",
        origin="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        hub=Hub("SetFit/subj", None, TWO, ("text",)),
    ),
    "imdb": Task(
        layout="imdb/{train,test}.tsv.gz with the columns label, text",
        origin="https://ai.stanford.edu/~amaas/data/sentiment/",
        hub=Hub("stanfordnlp/imdb", None, TWO, ("text",)),
    ),
    "imdb_pairs": Task(  # two reviews: do they have the same sentiment?
        folders=("imdb",),
        layout="imdb/{train,test}.tsv.gz with the columns label, text",
        origin="https://ai.stanford.edu/~amaas/data/sentiment/",
        hub=Hub("stanfordnlp/imdb", None, TWO, ("text",)),
    ),
    "aan": Task(  # two papers: does one cite the other?
        folders=("lra_release/lra_release/tsv_data", "tsv_data"),
        files={"new_aan_pairs.train": "train", "new_aan_pairs.eval": "validation", "new_aan_pairs.test": "test"},
        layout="aan/new_aan_pairs.{train,eval,test}.tsv without a header: label, id1, id2, text1, text2",
        origin=f"lra_release.gz of {LONG_RANGE}",
    ),
    "mnist": Task(
        folders=("mnist_subset",),
        layout="mnist/mnist.npz with x_train, y_train, x_test, y_test (images row, height, width)",
        origin="https://yann.lecun.com/exdb/mnist/",
        hub=Hub("ylecun/mnist", None, TWO, ("image",)),
    ),
    "cifar10_grey": Task(
        folders=("cifar10_grey_subset",),
        layout="cifar10_grey/cifar10_grey.npz with x_train, y_train, x_test, y_test (grey images row, height, width)",
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        hub=Hub("uoft-cs/cifar10", None, TWO, ("img",)),
    ),
}

WIKITEXT = "https://blog.salesforceairesearch.com/the-wikitext-long-term-dependency-language-modeling-dataset/"

STREAMS: dict[str, Task] = {  # running text, of `load_stream`; imdb is one too
    "wikitext-103": Task(
        folders=("wikitext-103-v1", "wikitext103"),
        layout="wikitext-103/wiki.{train,valid,test}.tokens",
        origin=WIKITEXT,
        hub=Hub("Salesforce/wikitext", "wikitext-103-v1", THREE, ("text",)),
    ),
    "wikitext-2": Task(
        folders=("wikitext-2-v1", "wikitext2"),
        layout="wikitext-2/wiki.{train,valid,test}.tokens",
        origin=WIKITEXT,
        hub=Hub("Salesforce/wikitext", "wikitext-2-v1", THREE, ("text",)),
    ),
    "wikitext2_heldout": Task(
        layout="wikitext2_heldout/{valid,test}.txt.gz",
        origin=WIKITEXT,
        hub=Hub("Salesforce/wikitext", "wikitext-2-v1", {"validation": "validation", "test": "test"}, ("text",)),
    ),
    "tinyshakespeare": Task(layout="tinyshakespeare/input.txt.gz", origin="https://github.com/karpathy/char-rnn"),
}
