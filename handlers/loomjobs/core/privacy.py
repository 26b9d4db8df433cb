"""What cannot be kept private in a declaration: a sensitive value that would be a name, or a mark without effect."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from loomjobs.core.errors import InvalidOption
from loomjobs.core.job import Job
from loomjobs.core.payload import plain
from loomjobs.core.problem import Problem
from loomjobs.core.redact import SHORTEST, scrub
from loomjobs.core.sensitive import Leaf, is_marked, is_sensitive, leaves, marked_fields, mask, places

_SURROGATE = "Use a surrogate id of the record that holds it"


def sensitive_problems(job: Job[Any, Any]) -> Iterator[Problem]:
    """Every mark of a job's payload and result that would be ignored, or whose value would show in logs and ids."""
    yield from _of_names(job)
    yield from _of_keys(job)
    yield from _of_signature(job)


def unsecret(name: str, job: Job[Any, Any], payload: object, option: str) -> str:
    """A key or group that a function or a caller made, if no sensitive value is in it: the declaration cannot tell.

    Values under 6 characters, and those that open fields have too, are let pass: they may be there by chance, and which
    calls go through must not be luck. Raises InvalidOption.
    """
    if is_marked(job.payload_type) and scrub(name, _telling(plain(payload), job.payload_type)) != name:
        raise InvalidOption(
            f"{job.name}: its {option} has the value of a sensitive field in it, and would be in record ids and logs. "
            f"{_SURROGATE}, or hash it."
        )
    return name


def _telling(data: object, type_: Any) -> Iterator[Leaf]:
    shown = json.dumps(mask(data, type_), ensure_ascii=False)
    return ((name, each) for name, each in leaves(data, type_) if len(str(each)) >= SHORTEST and str(each) not in shown)


def _of_names(job: Job[Any, Any]) -> Iterator[Problem]:
    marked = marked_fields(job.payload_type)
    for option, given in _named(job):
        for name in (given,) if isinstance(given, str) else given:
            if name in marked:
                cure = f"{_SURROGATE}{', or key= as a function that hashes it' if option == 'key=' else ''}."
                what = f"{option} names the sensitive field {name!r}, whose value would be in record ids and logs"
                yield Problem(job.where, what, cure)


def _named(job: Job[Any, Any]) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    options = job.options
    rate = getattr(options.rate, "key", None)
    for option, given in (
        ("key=", options.key),
        ("group=", options.group),
        ("exclusive=", options.exclusive),
        ("the key of rate=", rate),
    ):
        if isinstance(given, (str, tuple)):
            yield option, given


def _of_keys(job: Job[Any, Any]) -> Iterator[Problem]:
    for path, place in places(job.payload_type):
        if path.endswith("{key}") and is_sensitive(place):
            what = f"its payload marks the keys of {path.removesuffix('{key}').lstrip('.')} as sensitive"
            yield Problem(job.where, what, "Mark the whole field, or use a list of objects and mark their field.")


def _of_signature(job: Job[Any, Any]) -> Iterator[Problem]:
    """A mark counts on the field of a type. In the signature nobody would see it when the payload is decoded."""
    hints = job.hints(marked=True)
    payload = hints[next(iter(inspect.signature(job.function).parameters))]
    if _marked_paths(payload) != _marked_paths(job.payload_type):
        cure = "Mark the fields of its type, a dataclass."
        yield Problem(job.where, "its payload is marked as sensitive in the function's signature", cure)
    if is_marked(hints.get("return", Any)):
        cure = "Return what may be shown, such as the id of a record that holds the rest."
        yield Problem(job.where, "its result has a sensitive part, and results are kept in clear in the record", cure)


def _marked_paths(type_: Any) -> set[str]:
    return {path for path, place in places(type_) if is_sensitive(place)}
