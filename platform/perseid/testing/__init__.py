"""Fakes, the independent verifier, generators and shared test helpers. See README.md."""
