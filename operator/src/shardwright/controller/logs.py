"""One line for each log record, as key=value text or JSON, on standard error.

Decides the form. Records never hold request bodies, so no secret can be in them; kopf's own chatter is
kept to warnings.
"""

import json
import logging
import sys
import time
from typing import Final

_QUIET: Final = {"kopf": logging.WARNING, "aiohttp": logging.WARNING, "asyncio": logging.WARNING}


class TextFormatter(logging.Formatter):
    """`time level logger message`, the message being key=value by convention."""

    converter = time.gmtime  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(
            "time=%(asctime)sZ level=%(levelname)s logger=%(name)s msg=%(message)s", "%Y-%m-%dT%H:%M:%S"
        )

    def format(self, record: logging.LogRecord) -> str:
        """Keep a traceback on one line."""
        return super().format(record).replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give time, level, logger, message and a traceback where there is one."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(log_format: str, level: str) -> None:
    """Set up logging for the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
