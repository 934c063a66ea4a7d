"""What a text will cost the summary model, judged before it is sent (spec 2.6).

Law: the cost of a text is the sum of its characters' costs, so it can be planned with. All
arithmetic is in thousandths of a token and rounds up: too dear costs a second request, too
cheap costs a refused one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MILLI = 1000
_LOWEST, _HIGHEST = 300, 2000
_SAFETY = 1.3
# In UTF-8 every byte of a character beyond ASCII is one of these.
_NOT_ASCII = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of an ASCII character and of any other."""

    ascii_millitokens: int
    other_millitokens: int

    @property
    def dearest(self) -> int:
        """The price of the dearest character."""
        return max(self.ascii_millitokens, self.other_millitokens)

    def of_counts(self, chars: int, ascii_chars: int) -> int:
        """The cost, in thousandths of a token, of a text with so many characters."""
        others = chars - ascii_chars
        return ascii_chars * self.ascii_millitokens + others * self.other_millitokens

    def of(self, text: str) -> int:
        """The cost of a text, in thousandths of a token."""
        if self.ascii_millitokens == self.other_millitokens:
            return len(text) * self.ascii_millitokens
        return self.of_counts(len(text), count_ascii(text))

    def fitting_end(self, text: str, start: int, room_millitokens: int) -> int:
        """Where the longest piece of the text ends that begins at `start` and costs no more."""
        end, left = start, room_millitokens
        # Each step takes what fits at the dearest price and pays the true one: a few steps do.
        while (step := min(left // self.dearest, len(text) - end)) > 0:
            left -= self.of(text[end : end + step])
            end += step
        while end < len(text) and (price := self.of(text[end])) <= left:
            left -= price
            end += 1
        return end


UNMEASURED = Cost(600, 2000)
DEAREST = Cost(2000, 2000)


def measured_cost(tokens_per_char: float | None) -> Cost:
    """The cost by a measured figure; by character class if nothing was measured."""
    if tokens_per_char is None or not math.isfinite(tokens_per_char) or tokens_per_char <= 0:
        return UNMEASURED
    # Rounded first: 1.5 × 1.3 is a hair above 1.95 in floating point.
    price = math.ceil(round(min(tokens_per_char, float(_HIGHEST)) * _SAFETY * MILLI, 6))
    price = min(max(price, _LOWEST), _HIGHEST)
    return Cost(price, price)


def count_ascii(text: str) -> int:
    """The number of ASCII characters in a text."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass").translate(None, _NOT_ASCII))
