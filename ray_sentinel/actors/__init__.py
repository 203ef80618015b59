"""The thin Ray shell: agent, coordinator, deployment."""
