"""A mapping that forgets what was set longest ago."""

from __future__ import annotations

from collections import OrderedDict


class Bounded[V](OrderedDict[str, V]):
    """Holds the `size` entries set last; for figures that can be worked out again."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __setitem__(self, key: str, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._size:
            self.popitem(last=False)
