"""What ``ray-sentinel explain`` can explain: a module here is a kind of evidence.

As a command's module it has ``HELP``, ``add_arguments(parser)`` and ``run(args) -> int``; its name
is the module's with ``-`` for ``_``.
"""
