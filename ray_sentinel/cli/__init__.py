"""The command line: one command a file in ``commands/``, listed in ``overview``."""
