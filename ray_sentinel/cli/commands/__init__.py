"""Commands. A module here is a command: ``add_arguments(parser)``, ``run(args) -> int``.

Its name, what the list of all commands says of it and an example are a row in ``cli.overview``.
Modules import at the top only what is light: no ray, no torch, no pynvml.
"""
