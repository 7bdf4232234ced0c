"""The coordinator's HTTP API v1 and its metrics; `server` serves `routes` with a `guard`."""
