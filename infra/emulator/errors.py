"""What goes wrong on the way to an embedded AWS."""

from __future__ import annotations


class EmulatorError(Exception):
    """The embedded AWS could not do what was asked. The text says what to do."""
