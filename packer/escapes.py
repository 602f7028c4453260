"""Escapes: text that came out of a pack as what may be shown on a terminal, a picture or a page."""

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, bidi marks, surrogates, unassigned, line breaks
_ELLIPSIS = "..."
_MOST_CHARACTERS = 400


def printable(text: str) -> str:
    """The text on one line, characters that cannot be seen as escapes; of more than 400 characters not the middle.

    Terminal sequences, line breaks and marks that turn the direction of writing thus show what they are.
    """
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = text[:half] + _ELLIPSIS + text[-half:]
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSEEN else char for char in text
    )
