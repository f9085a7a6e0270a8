"""The native engine: a Transformer as C, compiled on this machine and loaded with ctypes.

step.c, search.c    encoding, one decoding step, whole searches
compiler            finds a C compiler, compiles once, keeps the library in the user's cache
layout              the weights as the C structures expect them
embedding, reader   token vectors; encoded sources
engine, search      the Stepper, and whole searches without Python between two tokens
"""
