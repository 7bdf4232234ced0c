"""Measures a running count job from outside: speed, latency and recovery, from its sink alone.

The same code measures perseid and its peers, and depends on neither: `n` of a word rises by the
number of counted words, and the broker's append time dates it. Like the verifier it imports nothing
of the engine.
"""
