"""Text on every machine, as tokens, cut into the windows that each data-parallel index sees."""

from course_lib.data.corpus import Corpus, load_corpus
from course_lib.data.sampler import WindowSampler, shard_indices
from course_lib.data.source import load_data, vocabulary_of

__all__ = [
    "Corpus",
    "WindowSampler",
    "load_corpus",
    "load_data",
    "shard_indices",
    "vocabulary_of",
]
