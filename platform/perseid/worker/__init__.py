"""The Spark worker: follows a job's tokens. README.md beside this file has the reading order."""
