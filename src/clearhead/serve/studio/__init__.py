"""The Studio: a page in which a model is used, opened up, changed and trained. `clearhead studio` opens it.

add_studio(app, Runs(Path("runs")))      to an app of `clearhead.serve`, whose models it shows

page/         the page: plain ES modules, which import the views of `look/render/js` as they are
pages.py      gives out both, with a policy under which no text can become script
play.py       answers as they are written, with what else could have stood at each token
seeing.py     the data of each view
what_if.py    a model with something switched off, beside itself
runs.py       trainings in processes of their own, which outlive the page and the server
training.py   the routes to them
"""

from __future__ import annotations

from fastapi import FastAPI

from clearhead.serve.studio import ideas, pages, play, seeing, training, what_if
from clearhead.serve.studio.runs import Runs

API = "/studio/api"


def add_studio(app: FastAPI, runs: Runs) -> None:
    """The page at `/studio/`, where `/` leads, and the routes that it asks."""
    app.state.runs = runs
    for part in (play, seeing, what_if, ideas, training):
        app.include_router(part.router, prefix=API, tags=["studio"])
    pages.install(app)


__all__ = ["Runs", "add_studio"]
