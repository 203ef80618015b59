"""From a case's evidence to a decision, and the words for it."""
