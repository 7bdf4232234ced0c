"""The Python process in which operators run: environment, spare memory, whether it is busy."""
