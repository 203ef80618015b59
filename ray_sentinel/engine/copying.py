"""Copies of mutable records, generated from their types, so that the original can keep changing.

Frozen records and immutable values are shared by original and copy; everything mutable is copied;
the copy itself must not be changed. Which is which follows from the annotations and is determined
once for each type, so that a copy of some thousand records costs a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import inspect

from ray_sentinel.engine.telemetry.sample_columns import SampleColumns
from ray_sentinel.model.samples import Floats

Copier = Callable[[Any], Any]
T = TypeVar("T")
_NO_LIST: list[Any] = []
_NO_DICT: dict[Any, Any] = {}
"""The shared copy of all empty dictionaries: most of them are empty."""


def copier(kind: type[T]) -> Callable[[T], T]:
    """A function that copies records of this type. Raises TypeError if the type contains
    something unknown here."""
    found = _Copiers().of(inspect.type_info(kind))
    return found if found is not None else _same


def _same(value: Any) -> Any:
    return value


class _Copiers:
    """Makes the copier of each type, once; None for types whose values are shared."""

    def __init__(self) -> None:
        self._of_class: dict[type, Copier] = {}

    def of(self, kind: inspect.Type) -> Copier | None:
        match kind:
            case inspect.StructType():
                return self._of_struct(kind)
            case inspect.ListType():
                return _list(self.of(kind.item_type))
            case inspect.VarTupleType():
                return _tuple(self.of(kind.item_type))
            case inspect.TupleType():
                return _places([self.of(item) for item in kind.item_types])
            case inspect.NamedTupleType():
                cls: Any = kind.cls
                return _places([self.of(field.type) for field in kind.fields], cls._make)
            case inspect.SetType():
                return set.copy  # what is in a set cannot change
            case inspect.DictType():
                return _mapping(self.of(kind.value_type))
            case inspect.UnionType():
                return self._of_union(kind)
            case inspect.CustomType(cls=cls) if cls is Floats:
                return Floats
            case inspect.CustomType(cls=cls) if cls is SampleColumns:
                return SampleColumns.copy
            case inspect.AnyType() | inspect.CustomType() | inspect.DataclassType():
                raise TypeError(f"{kind}: nobody knows whether it can change")
        return None

    def _of_struct(self, kind: inspect.StructType) -> Copier | None:
        if kind.cls.__struct_config__.frozen:
            return None
        if kind.cls not in self._of_class:
            plan: list[tuple[str, Copier]] = []
            # Entered before its fields are examined, because they may contain the type itself.
            self._of_class[kind.cls] = _record(plan)
            found = ((field.name, self.of(field.type)) for field in kind.fields)
            plan.extend((name, of_field) for name, of_field in found if of_field is not None)
        return self._of_class[kind.cls]

    def _of_union(self, kind: inspect.UnionType) -> Copier | None:
        """A copier that chooses by the class of the value; None if the values of none of its types
        can change."""
        found: dict[type, Copier] = {}
        for one in kind.types:
            if (of_one := self.of(one)) is not None:
                found[_class(one)] = of_one
        if not found:
            return None

        def copied(value: Any) -> Any:
            of_value = found.get(type(value))
            return value if of_value is None else of_value(value)

        return copied


def _class(kind: inspect.Type) -> type:
    match kind:
        case inspect.ListType():
            return list
        case inspect.DictType():
            return dict
        case inspect.SetType():
            return set
        case inspect.TupleType() | inspect.VarTupleType():
            return tuple
        case inspect.StructType(cls=cls) | inspect.NamedTupleType(cls=cls):
            return cls
    raise TypeError(f"{kind}: nobody knows its class")


def _record(plan: list[tuple[str, Copier]]) -> Copier:
    def copied(value: Any) -> Any:
        made = value.__copy__()
        for name, of_field in plan:
            setattr(made, name, of_field(getattr(made, name)))
        return made

    return copied


def _list(item: Copier | None) -> Copier:
    if item is None:
        return lambda value: list.copy(value) if value else _NO_LIST
    return lambda value: [item(one) for one in value]


def _mapping(of_value: Copier | None) -> Copier:
    if of_value is None:
        return lambda value: dict.copy(value) if value else _NO_DICT
    return lambda value: {key: of_value(one) for key, one in value.items()}


def _tuple(item: Copier | None) -> Copier | None:
    if item is None:
        return None
    return lambda value: tuple(item(one) for one in value)


def _places(items: list[Copier | None], make: Copier = tuple) -> Copier | None:
    if not any(items):
        return None
    each = [item or _same for item in items]
    return lambda value: make(item(one) for item, one in zip(each, value, strict=True))
