"""Data sets as token sequences: scikit-learn's digits, any labelled text folder, pixel folders."""

from experiments.data.dataset import PAD, UNKNOWN, Batches, Dataset, Split
from experiments.data.files import named
from experiments.data.images import patches
from experiments.data.loading import load
from experiments.data.tables import read_table
from experiments.data.texts import words

__all__ = ["PAD", "UNKNOWN", "Batches", "Dataset", "Split", "load", "named", "patches", "read_table", "words"]
