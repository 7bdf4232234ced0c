"""The steps of an epoch in one operator partition, and the reports about it."""
