"""What a query asks for, and the answer to one that asks for nothing that there is."""

from __future__ import annotations

from urllib.parse import parse_qs

MOST_CHARACTERS = 2000
"""Most characters of a question; a longer one is refused."""


class UnknownQuestion(ValueError):
    """The question names nothing that can be looked for; the text says what can."""


def fields(query: str) -> dict[str, str]:
    """Its fields; of several with one name, the last. Raises UnknownQuestion for one that is too
    long."""
    if len(query) > MOST_CHARACTERS:
        raise UnknownQuestion(f"a question has at most {MOST_CHARACTERS} characters")
    return {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
