"""The native engine: a Transformer as C, compiled on this machine and loaded with ctypes.

step.c, search.c    encoding, one decoding step, whole searches
library             compiles them once and keeps the result in the user's cache; chooses the number of threads
layout              the weights as the C structures expect them
engine              the Stepper, the sources it encodes, and whole searches without Python between two tokens
"""
