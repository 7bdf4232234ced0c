"""Converts values of Kafka records to Arrow columns and back."""
