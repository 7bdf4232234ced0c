"""Decides which worker runs each job and which input each epoch reads. See README.md."""
