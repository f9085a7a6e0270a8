"""Other people's checkpoints and runtimes.

ct2    a Transformer of ours as a model directory of CTranslate2
"""
