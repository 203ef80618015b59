"""The user's own rules for a job's Prometheus: used while they are good, read again when changed.

Prometheus does not start with a rule that is none, and keeps the old ones when it is told to read
such a one while it runs.
"""

from __future__ import annotations

from ray_sentinel.store.job_files import JobFiles


class UserRules:
    """The rule files in ``rules/`` of a job's Prometheus."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._seen = files.user_rules()
        self.untrusted = files.untrusted_rules()
        """Why they are left alone: others can have written them; empty where not."""
        self.used = not self.untrusted
        """Whether Prometheus is given them."""
        self._since: int | None = None

    def changed(self) -> bool:
        """Whether they are others than at the last look; then they are worth a try again."""
        rules = self._files.user_rules()
        if rules == self._seen:
            return False
        self._seen, self.untrusted = rules, self._files.untrusted_rules()
        self.used = not self.untrusted
        return True

    def told(self) -> None:
        """Prometheus is about to be told to read them: what it says from now on is about that."""
        self._since = self._files.log_size()

    def refused(self, words: str) -> bool:
        """Whether its last words refuse them; then they are not used any more."""
        if not self._files.blames_rules(words):
            return False
        self.used, self._since = False, None
        return True

    def objection(self) -> str:
        """What it said against them since it was told to read them; empty where nothing."""
        if self._since is None:
            return ""
        words = self._files.last_words(self._since)
        return words if self.refused(words) else ""
