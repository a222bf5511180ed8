"""Prints docs/python-api.md: signatures and docstrings of all that is public."""

from __future__ import annotations

import inspect
import re

import haltwise
from haltwise import aeon, plot, sktime, tslearn

HEAD = """# Python API

Printed by `python -I python/reference.py`; a test compares it with the code. For a walk
through, see [python.md](python.md).
"""


def signature(name: str, thing: object) -> str:
    """The call with its arguments; empty for names that users do not call."""
    try:
        found = inspect.signature(thing)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(thing) and not found.parameters:
        return ""
    # Annotations are kept as text, in one kind of quotes or the other.
    text = re.sub(r"""(: |-> )(["'])(.*?)\2""", r"\1\3", str(found))
    text = re.sub(r"ForwardRef\('(\w+)'\)", r"\1", text)
    if inspect.isclass(thing):
        text = text.removesuffix(" -> None")
    if len(name + text) > 88:
        arguments, returns = text[1:].rsplit(")", 1)
        lines = re.split(r", (?=[*\w]+(?::|$|,))", arguments)
        text = "(\n    " + ",\n    ".join(lines) + f",\n){returns}"
    return f"```python\n{name}{text}\n```\n\n"


def document(name: str, thing: object, level: int) -> str:
    words = inspect.getdoc(thing)
    return f"{'#' * level} {name}\n\n{signature(name, thing)}```text\n{words}\n```\n"


def members(cls: type) -> list[tuple[str, object]]:
    # In the order of the code; types made in Rust do not keep it.
    names = sorted(vars(cls)) if cls.__module__ == "haltwise._core" else list(vars(cls))
    # scikit-learn adds methods that route metadata.
    own = [name for name in names if not name.startswith("_") and not name.endswith("_request")]
    described = (property, type(haltwise.Stream.steps))
    found = [(name, getattr(cls, name)) for name in own]
    return [
        (n, m) for n, m in found if inspect.getdoc(m) and (callable(m) or isinstance(m, described))
    ]


def main() -> None:
    parts = [HEAD]
    for name in haltwise.__all__:
        thing = getattr(haltwise, name)
        if name.startswith("__"):
            continue
        parts.append(document(name, thing, 2))
        if inspect.isclass(thing):
            parts += [document(f"{name}.{member}", value, 3) for member, value in members(thing)]
    for module in (aeon, sktime, tslearn):
        for name in module.__all__:
            short = module.__name__.removeprefix("haltwise.")
            adapter = getattr(module, name)
            parts.append(document(f"{short}.{name}", adapter, 2))
            parts += [document(f"{name}.{member}", value, 3) for member, value in members(adapter)]
    parts.append(document("plot", plot, 2))
    parts += [document(f"plot.{name}", getattr(plot, name), 3) for name in plot.__all__]
    print("\n".join(parts), end="")


if __name__ == "__main__":
    main()
