"""Loops over the bytes of whole batches, in C: JSON, hashes of keys, the client's messages.

What NumPy and Arrow have no function for and Python would do record by record. `build` compiles the
C files into one library, the modules beside them of the same names call it.
"""
