"""The `perseid` command: one module per verb or group of verbs, joined in `main`."""
