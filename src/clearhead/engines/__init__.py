"""Engines: faster ways to run a network. Each is a Stepper that computes what the network computes.

torch       the network itself: the definition of the others, and what runs where they cannot
compiled    native code (native/), built with the package
ct2         CTranslate2, where it is installed (ct2.py)
"""
