"""The coordinator's page and its JSON API."""
