"""Text on every machine, as tokens, cut into the windows that each data-parallel index sees."""

from course_lib.data.corpus import Corpus, load_corpus
from course_lib.data.sampler import WindowSampler, shard_indices

__all__ = ["Corpus", "WindowSampler", "load_corpus", "shard_indices"]
