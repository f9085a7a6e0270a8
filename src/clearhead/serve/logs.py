"""What the service logs: each line a JSON object, for programs that collect logs.

{"time": "2026-01-14T10:15:00.123Z", "level": "info", "logger": "clearhead.serve.access", "request": "b5c1…",
 "message": "POST /translate 200", "client": "127.0.0.1", "method": "POST", "path": "/translate", "status": 200, …}
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from clearhead.serve.errors import request_id


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request": request_id.get(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as_json() -> None:
    """Write every request, warning and error to stderr as a line of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("clearhead.serve.access").setLevel(logging.INFO)
