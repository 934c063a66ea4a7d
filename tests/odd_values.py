"""Values nobody would write into a config, and some would find there."""

from __future__ import annotations

from hypothesis import strategies as st

# Longer than Python writes out.
HUGE = 10**6_000

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


class Unprintable:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError
