"""Topic names, control records and their logs, and the Kafka clients. See README.md."""
