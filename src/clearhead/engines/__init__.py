"""Engines: ways to make a model's steps. Each is a Stepper that says what the model itself would say, only faster.

torch       the model as it is written in nn/ and models/
compiled    its steps as native code, compiled the first time they are worth it
ct2         CTranslate2, where it is installed
"""
