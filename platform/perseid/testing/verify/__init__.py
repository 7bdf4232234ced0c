"""The independent verifier: was every input record counted once, in order, and nothing else?

It reads Kafka with plain confluent-kafka and counts with `collections.Counter`. It imports nothing
of the engine on purpose: a fault of the engine's own reading or counting code would otherwise hide
itself. A test checks the imports.
"""

from perseid.testing.verify.multiset import MultisetCheck, verify_multiset
from perseid.testing.verify.verdict import Verdict
from perseid.testing.verify.wordcount import WordcountCheck, count_words, verify_wordcount

__all__ = [
    "MultisetCheck", "Verdict", "WordcountCheck", "count_words", "verify_multiset",
    "verify_wordcount",
]  # fmt: skip
