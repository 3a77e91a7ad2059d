"""Data sets as token sequences: labelled texts and images from folders or the Hugging Face hub, generated tasks, streams of text."""

from experiments.data.dataset import PAD, UNKNOWN, Batches, Dataset, Split
from experiments.data.files import named
from experiments.data.images import patches
from experiments.data.listops import ListOps
from experiments.data.loading import load
from experiments.data.pathfinder import Pathfinder
from experiments.data.streams import Blocks, Stream, load_stream
from experiments.data.tables import read_table
from experiments.data.tasks import TASKS
from experiments.data.tokenisers import words

__all__ = [
    "PAD",
    "TASKS",
    "UNKNOWN",
    "Batches",
    "Blocks",
    "Dataset",
    "ListOps",
    "Pathfinder",
    "Split",
    "Stream",
    "load",
    "load_stream",
    "named",
    "patches",
    "read_table",
    "words",
]
