"""The native engine: a Transformer as C, loaded with ctypes. tools/build_native.py compiles it with the package.

clearhead.h         what C and Python share: structures (fields.c describes them to tests) and exported functions
vector.h, linear.h  rows of floats; products with matrices of floats or bytes
threads.c           threads that share the loops of a step
step.c, search.c    encoding and one decoding step; whole searches
variant.c           what this processor can run
library             opens the library, and chooses the variant and the number of threads
memory              large pages for weights
layout              the weights as the C structures expect them
engine              the Stepper, the sources it encodes, and whole searches without Python between two tokens
"""
