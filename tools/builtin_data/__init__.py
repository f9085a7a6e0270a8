"""The grammars and templates that wrote the built-in text data of `clearhead.data.builtin`.

pairs     50,000 English sentences and their Spanish translations
prose     800 texts: stories, letters, scenes, verses
reviews   6,000 reviews, positive and negative
tags      6,000 sentences with their parts of speech

The package ships what they wrote, as `.gz` files; `tools/make_builtin_data.py` writes those files again.
"""
