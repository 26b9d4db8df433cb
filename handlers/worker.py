"""Lambda entry point: the worker of one queue, which its environment variables name."""

from __future__ import annotations

from loomjobs.aws.handler import make_handler

handler = make_handler()
