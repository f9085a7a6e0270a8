"""Engines: ways to make a model's steps. Each is a Stepper that says what the model itself would say, only faster.

torch       the steps of a Transformer in torch's operations and TorchScript; other models as they stand in models/
compiled    its steps as native code, compiled the first time they are worth it
ct2         CTranslate2, where it is installed
"""
