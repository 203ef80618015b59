"""The compiled catalogue: which signature a line matches, and which lines are worth matching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from ahocorasick_rs import BytesAhoCorasick, Implementation

from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.errors.signatures import (
    Advice,
    CompiledSignature,
    Signature,
    compile_rule,
)
from ray_sentinel.evidence.logs.training.phases import PhaseMark, compile_marks

# Which lines of a piece of a log hold one of many words, in one pass (Aho and Corasick, 1975).


class WordSearch:
    """Searches for fixed words, all at once."""

    def __init__(self, words: Sequence[bytes]) -> None:
        """``words`` must not be empty; each is lower-case and not empty."""
        self.words = tuple(words)
        self._automaton = BytesAhoCorasick(words, implementation=Implementation.DFA)

    def lines(self, lower: bytes, limit: int, most: int) -> list[tuple[int, int]]:
        """(line start, position of a word) of the lines that hold one of the words, in order.

        ``lower`` is in lower case; only lines that begin before ``limit`` count, itself a line's
        first byte. A word that occurs on more than ``2 * most`` lines is chatter: only its first
        and last ones count.
        """
        places: list[list[int]] = [[] for _ in self.words]
        text = memoryview(lower)[:limit]
        for word, at, _ in self._automaton.find_matches_as_indexes(text, overlapping=True):
            places[word].append(at)
        found: dict[int, int] = {}
        for of_word in places:
            # Each line's beginning is looked for once: a line of a megabyte may hold a word at
            # every place.
            begins = _on_new_lines(lower, of_word, len(of_word))
            for begin, at in begins if len(of_word) <= most else _outer(lower, of_word, most):
                found.setdefault(begin, at)
        return sorted(found.items())


def _outer(lower: bytes, places: list[int], most: int) -> Iterator[tuple[int, int]]:
    """The beginning of each of the first and the last ``most`` lines that hold ``places``, and a
    place in it."""
    yield from _on_new_lines(lower, places, most)
    yield from _on_new_lines(lower, reversed(places), most)


def _on_new_lines(lower: bytes, places: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    begin, end, left = 0, -1, most
    for at in places:
        if begin <= at <= end:
            continue
        if not left:
            return
        begin = lower.rfind(b"\n", 0, at) + 1
        end = lower.find(b"\n", at)
        end = len(lower) if end < 0 else end
        left -= 1
        yield begin, at


_WORDS = (
    "error|exception|fail|timeout|timed out|time out|traceback|kill|signal|abort|died|dead|lost|"
    "memory|xid|warn|refused|reset by peer|exit|cancel|preempt|terminat|watchdog|nan|stall|"
    "complete|succe|finished|no space|unable|heartbeat|last enqueued|mismatch|duplicate gpu|"
    "got completion|gloo|closed|clients joined|stale|rendezvous|etcd|missing|environ|"
    "already in use|off the bus|uncorrectable|no cuda|invalid|not found|no such|cannot|could not|"
    "does not|unexpected|denied|quota|errno|is full|blocked for|panic|oom|sigterm|sigkill|sigsegv|"
    "sigint|interrupt|segmentation|unrecognized|divisible|must be|undefined symbol|gated|couldn't|"
    "corrupt|truncated|stopiteration|insufficient|scheduled|evict|spot |due to|straggler|is slow|"
    "stuck|hung|hang |progress|throughput|finite|checkpoint|train_runtime|summary|ran out|"
    "resource_exhausted|compil|barrier|amdgpu|lockup|nvswitch|"
    "too many|no route|can't|nfs: |nvme|read-only|assert|illegal|diverged|loss scale|"
    "sending process|closing process|received 15|net/ofi sel|using network|max retries|stopped|"
    "is done|async thread|on test set|registertask|dereference|free(): |malloc(): |smashing|"
    "post /|processed prompts|unavailable|unplugged| down"
)
TRIGGERS: tuple[str, ...] = tuple(_WORDS.split("|"))
"""The words that get a line looked at closely. They are few, because each calls up lines; the
entries add their own words where these do not cover them."""

_ROLE_ORDER = {"cause": 1, "symptom": 2, "echo": 3, "note": 4}


class SignatureMatch(msgspec.Struct, frozen=True):
    """One entry that a line matches, with its captured named groups."""

    signature: Signature
    groups: dict[str, str]


class Catalogue:
    """The entries, compiled. Immutable after construction."""

    def __init__(
        self,
        signatures: Iterable[tuple[str, Signature]],
        advice: Iterable[Advice] = (),
        marks: Iterable[PhaseMark] = (),
        own: Iterable[tuple[str, Signature]] = (),
    ) -> None:
        """``signatures`` are (source, entry) pairs, ``own`` those of a user's file, whose words are
        searched for separately; a later id replaces an earlier one.

        Raises ConfigError for an entry that cannot be used.
        """
        rules: dict[str, CompiledSignature] = {}
        own = tuple(own)
        for where, signature in signatures:
            rules[signature.id] = compile_rule(signature, where, check=False)
        for where, signature in own:
            rules[signature.id] = compile_rule(signature, where)
        self.rules: tuple[CompiledSignature, ...] = tuple(rules.values())
        self.advice: tuple[Advice, ...] = tuple(advice)
        self.marks = compile_marks(marks)
        self.by_id = rules
        self._harmless = tuple(r for r in self.rules if r.signature.harmless)
        self._frames = tuple(r for r in self.rules if r.signature.frames)
        self._connections = tuple(r for r in self.rules if r.signature.connections)
        self._by_word = self._index()
        self.triggers = WordSearch([word.encode() for word in self._by_word])

    def _index(self) -> dict[str, tuple[CompiledSignature, ...]]:
        """Trigger word → the rules that a line with it may show.

        Every word of an entry holds a trigger or is one: else it would be found only in lines that
        another word selects.
        """
        words: dict[str, dict[str, CompiledSignature]] = {word: {} for word in TRIGGERS}
        told = [
            rule
            for rule in self.rules
            if not (rule.signature.harmless or rule.signature.frames or rule.signature.connections)
        ]
        pairs = [(literal, rule) for rule in told for literal in rule.literals]
        for literal, rule in sorted(pairs, key=lambda pair: len(pair[0])):
            word = next((word for word in words if word in literal), literal)
            words.setdefault(word, {})[rule.signature.id] = rule
        return {word: tuple(rules.values()) for word, rules in words.items()}

    def get(self, name: str) -> Signature:
        """The entry called ``name``. Raises ConfigError if a user's file removed it."""
        try:
            return self.by_id[name].signature
        except KeyError:
            raise ConfigError(f"the log catalogue has no signature {name!r}") from None

    def rule(self, name: str) -> CompiledSignature:
        """The compiled entry called ``name``."""
        return self.by_id[name]

    def search(self, text: str, file_kind: str = "") -> SignatureMatch | None:
        """The entry that says most about ``text``: by role, then by weight. A harmless entry takes
        precedence over all but a note of completion. None if no entry matches the line, or only a
        harmless one: see ``is_harmless``."""
        lower = text.lower()
        best: SignatureMatch | None = None
        best_key = (9, 0)
        for rule in self._candidates(lower):
            signature = rule.signature
            key = (_ROLE_ORDER[signature.role], -signature.weight)
            if key >= best_key or (signature.files and file_kind not in signature.files):
                continue
            groups = rule.search(text, lower)
            if groups is not None:
                best, best_key = SignatureMatch(signature, groups), key
        if best is None:
            return None
        harmless = self.harmless(text, file_kind)
        if harmless is None or (best.signature.weight > harmless.weight and best_key[0] == 1):
            return best
        # "finished, 0 errors": a counter of errors does not weaken the word of completion beside
        # it.
        return self._completion(text, lower, file_kind) or SignatureMatch(harmless, {})

    def _completion(self, text: str, lower: str, file_kind: str) -> SignatureMatch | None:
        for rule in self._candidates(lower):
            signature = rule.signature
            if signature.kind != "completed" or signature.role != "note":
                continue
            if signature.files and file_kind not in signature.files:
                continue
            if (groups := rule.search(text, lower)) is not None:
                return SignatureMatch(signature, groups)
        return None

    def _candidates(self, lower: str) -> Iterator[CompiledSignature]:
        for word, rules in self._by_word.items():
            if rules and word in lower:
                yield from rules

    def search_frames(
        self, frames: Iterable[str], *, connections: bool = False
    ) -> Signature | None:
        """What the place of an exception shows, by the entries for frames; None if none matches.

        ``connections``: by the entries that say what a failed connection was for.
        """
        text = "\n".join(frames)
        lower = text.lower()
        rules = self._connections if connections else self._frames
        fits = (r.signature for r in rules if r.search(text, lower) is not None)
        return max(fits, key=lambda signature: signature.weight, default=None)

    def harmless(self, text: str, file_kind: str = "") -> Signature | None:
        """The harmless entry that matches ``text``, or None."""
        lower = text.lower()
        for rule in self._harmless:
            signature = rule.signature
            if signature.files and file_kind not in signature.files:
                continue
            if rule.search(text, lower) is not None:
                return signature
        return None

    def advice_for(self, kind: str, phase: str = "") -> tuple[Advice, ...]:
        """What to do about a class; advice for exactly this phase comes first."""
        fits = [a for a in self.advice if a.kind == kind and a.phase in ("", phase)]
        return tuple(sorted(fits, key=lambda a: a.phase == ""))
