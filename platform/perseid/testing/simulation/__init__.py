"""perseid.testing.simulation: the protocol's real modules under one seeded clock, with faults."""
