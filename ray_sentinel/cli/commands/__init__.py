"""Commands. A module here is a command: ``HELP``, ``add_arguments(parser)``, ``run(args) -> int``,
and for the list of all commands ``GROUP`` (a key of ``cli.overview``) and ``EXAMPLE``.

The command's name is the module's name with ``-`` for ``_`` (a trailing ``_`` is dropped). Modules
import at the top only what is light: no ray, no torch, no pynvml.
"""
