"""The steps of an epoch in one operator partition, and what is reported of it."""
