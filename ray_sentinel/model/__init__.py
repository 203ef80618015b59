"""What things are: frozen, typed records that pickle and encode to JSON or MessagePack.

Every record is a ``msgspec.Struct``: fields that a newer version adds are ignored by an older
reader, and have defaults for a newer one, so agents and a coordinator of different versions can
still talk. Times are Unix seconds (``float``) of the machine that stamped them unless the field
says otherwise; durations are seconds; sizes are bytes.
"""
