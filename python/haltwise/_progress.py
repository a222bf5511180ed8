"""Progress bars, for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bytes_bar(progress: Any, what: str) -> Iterator[Callable[[int, int], object] | None]:
    """What to call with the bytes done and the bytes in all."""
    if progress is not True:
        yield progress or None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=what, unit="B", unit_scale=True) as bar:

        def tell(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield tell


@contextmanager
def checkpoints_bar(progress: bool) -> Iterator[Callable[[int, int, float], object] | None]:
    """What to call after every checkpoint: how many are done, of how many, and the accuracy."""
    if not progress:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc="training", unit=" checkpoints") as bar:

        def tell(done: int, of: int, accuracy: float) -> None:
            bar.total = of
            bar.set_postfix(accuracy=accuracy, refresh=False)
            bar.update(done - bar.n)

        yield tell


@contextmanager
def epochs_bar(progress: Any) -> Iterator[Callable[[int, float, float, float], object] | None]:
    """What to call after every epoch."""
    if progress is not True:
        yield progress or None
        return
    from tqdm.auto import tqdm

    with tqdm(desc="training", unit=" epochs") as bar:

        def tell(epoch: int, loss: float, validation: float, accuracy: float) -> None:
            bar.set_postfix(loss=loss, validation=validation, accuracy=accuracy, refresh=False)
            bar.update(epoch - bar.n)

        yield tell
