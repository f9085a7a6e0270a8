"""The tasks, one file each."""

from __future__ import annotations

from clearhead.config import Task as TaskName
from clearhead.train.task import Task
from clearhead.train.tasks.caption import Caption
from clearhead.train.tasks.classify import Classify
from clearhead.train.tasks.lm import Lm
from clearhead.train.tasks.tag import Tag
from clearhead.train.tasks.translate import Translate
from clearhead.train.tasks.vision import Vision
from clearhead.train.tasks.words import Words

TASKS: dict[TaskName, type[Task]] = {
    "translate": Translate,
    "lm": Lm,
    "classify": Classify,
    "tag": Tag,
    "vision": Vision,
    "caption": Caption,
    "words": Words,
}
