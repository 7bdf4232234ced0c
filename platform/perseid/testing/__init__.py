"""Fakes, the independent verifier, generators and what tests share. See README.md."""
