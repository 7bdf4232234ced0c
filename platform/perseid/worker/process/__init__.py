"""The Python process in which operators run: environment, spare memory, background activity."""
