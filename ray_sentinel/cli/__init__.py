"""The command line: one command a file in ``commands/``, found by looking into that folder."""
