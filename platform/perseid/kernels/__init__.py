"""Loops over the bytes of whole batches, in C: JSON, hashes of keys, the client's messages.

NumPy and Arrow have no function for them, and Python would process record by record. `build`
compiles the C files into one library, which the modules of the same names call.
"""
