"""The Studio: a page in the browser to use a model, look inside it, change it and train one (`clearhead studio`).

app.py        the page, its policy and its routes added to an app of `clearhead.serve`
inputs.py     what the routes have in common: a model and an input for it
models.py     what each model is, its card, its original, and opening another one by path or upload
play.py       answers token by token, with the alternatives of each token
chat.py       conversations, and what each token of an answer looked at
views.py      the data of each view
what_if.py    a model with parts switched off, beside the original
runs.py       trainings as separate processes, which outlive the page and the server
lessons.py    the ideas of the lectures, each with its equation and its code
page/         the page in five languages: plain ES modules, which import the view modules of `look/render/js`
"""
