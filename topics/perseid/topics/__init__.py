"""Topic names, control records, the logs made of them, and the Kafka clients. See README.md."""
