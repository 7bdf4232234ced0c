"""The benchmarks of `perseid bench`: what is run, on both sides, and how it is measured."""
