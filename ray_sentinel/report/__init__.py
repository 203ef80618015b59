"""Pure: incidents, health and diagnoses as Markdown, JSON and HTML."""
