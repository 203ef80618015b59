"""One playbook a file."""
