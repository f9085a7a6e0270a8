"""Engines: faster ways to run a network. Each is a Stepper that computes what the network computes.

torch       torch operations and TorchScript (torchscript.py); networks that it does not support run as they are
compiled    native code (native/), compiled the first time it is worth it
ct2         CTranslate2, where it is installed (ct2.py)
"""
