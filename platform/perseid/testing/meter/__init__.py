"""Measures a running count job from outside: speed, latency and recovery, from its sink alone.

The same code measures perseid and its peers, and it knows nothing of either: `n` of a word rises by
what was counted, and the broker's append time says when. Like the verifier it imports nothing of
the engine.
"""
