"""Outputs to Kafka, exactly once, with a ledger."""
