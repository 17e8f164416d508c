"""JSON form of frozen dataclasses: one strict codec for everything that is stored.

A class derives from `JsonObject` and names itself in `json_label`, which starts each error. Its
fields are the keys of the JSON object. `stored` changes how a field is stored, `Annotated` types
such as `Count` limit its values.

- A field without a default is required. `X | None` may then be null.
- A field with a default is left out when it has that value, and may be missing when read.
- Unknown keys, missing keys and values of other types raise ValueError.

An `OpenJsonObject` is parsed leniently, because other programs and releases write such objects too:
unknown keys are ignored, missing and invalid keys are recorded in `problems`.

Entries are decoded in hot loops, so each class is inspected once and kept as a plan.
"""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass, field
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from shardline.canonical_json import Json, validate_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    Decode: TypeAlias = Callable[[Any], Any]
    Encode: TypeAlias = Callable[[Any], Any]

_STORED = "stored"
_MISSING: Any = object()


class JsonObject:
    """Base of dataclasses with a JSON form. `json_constants` are keys with a fixed value."""

    __slots__ = ()
    json_label: ClassVar[str]
    json_constants: ClassVar[Json] = {}

    def to_dict(self) -> Json:
        """Serialize to a JSON object."""
        return encode(self)

    @classmethod
    def from_dict(cls, payload: object) -> Self:
        """Parse a JSON object. Raises ValueError on unknown, missing or invalid keys."""
        return decode(cls, payload)


@dataclass(frozen=True, slots=True)
class Minimum:
    """Limits an integer."""

    least: int


@dataclass(frozen=True, slots=True)
class Converter:
    """Stores a value as another JSON type, `kind`.

    `decode` takes the JSON value and the start of the error that it raises for an invalid one.
    """

    kind: type
    encode: Encode | None
    decode: Callable[[Any, str], Any]


Count: TypeAlias = Annotated[int, Minimum(0)]
Positive: TypeAlias = Annotated[int, Minimum(1)]
Digest: TypeAlias = Annotated[str, Converter(str, None, validate_digest)]


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str | None = None
    required: bool = False
    missing: object = _MISSING
    is_stored: bool = True
    is_flat: bool = False


def stored(
    key: str | None = None,
    *,
    required: bool = False,
    missing: object = _MISSING,
    flat: bool = False,
) -> dict[str, _Storage]:
    """Return field metadata for a field that is not stored under its own name, or not as usual.

    Args:
        key: The key on disk.
        required: The key is always written and must exist, although the field has a default.
        missing: The key is always written. If it is missing, the field gets this value.
        flat: The field is an object whose keys are stored among those of the outer object.
    """
    return {_STORED: _Storage(key, required=required, missing=missing, is_flat=flat)}


def not_stored() -> dict[str, _Storage]:
    """Return field metadata for a field that is not part of the JSON object."""
    return {_STORED: _Storage(is_stored=False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJsonObject(JsonObject):
    """Base of dataclasses with lenient parsing. Each field has a default.

    `problems` has the error of each key that is missing or invalid. Its field has the default
    then; of a list, the invalid items are left out.
    """

    problems: dict[str, str] = field(
        default_factory=dict, init=False, repr=False, compare=False, metadata=not_stored()
    )

    def validated(self) -> Self:
        """Return the object. Raises ValueError if a key is missing or invalid."""
        for problem in self.problems.values():
            raise ValueError(problem)
        return self


Item = TypeVar("Item", bound=JsonObject)


def encode(value: JsonObject) -> Json:
    """Serialize to a JSON object."""
    return _get_plan(type(value)).encode(value)


def decode(cls: type[Item], payload: object, **others: object) -> Item:
    """Parse a JSON object. `others` are the values of fields that are not stored.

    Raises ValueError on unknown, missing or invalid keys.
    """
    value: Any = _get_plan(cls).decode(payload, **others)
    return value  # type: ignore[no-any-return] # the plan of a class builds that class


@dataclass(frozen=True, slots=True)
class _Form:
    """JSON form of a type.

    A JSON value whose type is `kind` is taken as it is, any other goes through `decode`.
    """

    kind: type | None
    decode: Decode
    encode: Encode | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    """JSON form of a field. `missing` is its value if the key is missing."""

    name: str
    key: str
    form: _Form
    is_required: bool
    missing: object
    is_always_written: bool
    default: object


class _Plan:
    """JSON form of a class. `keys` are all known keys."""

    def __init__(self, cls: type[JsonObject], label: str) -> None:
        hints = get_type_hints(cls, include_extras=True)
        self.is_open = issubclass(cls, OpenJsonObject)
        flat: list[tuple[str, _Plan]] = []
        fields: list[_Field] = []
        for member in dataclasses.fields(cls):  # type: ignore[arg-type] # all derived ones are
            storage = member.metadata.get(_STORED, _Storage())
            if storage.is_flat:
                flat.append((member.name, _Plan(hints[member.name], label)))
            elif storage.is_stored:
                hint = hints[member.name]
                fields.append(_plan_field(member, storage, hint, label, is_open=self.is_open))
        self._build: Callable[..., JsonObject] = cls
        self._label = label
        self._constants = dict(cls.json_constants)
        self._flat = flat
        self.keys = {*self._constants, *(field.key for field in fields)}
        self.keys = self.keys.union(*(inner.keys for _, inner in flat))
        self._reads = [
            (item.key, item.name, item.form.kind, item.form.decode, item.is_required, item.missing)
            for item in fields
        ]
        self._writes = [
            (item.name, item.key, item.form.encode, item.is_always_written, item.default)
            for item in fields
        ]

    def decode(self, payload: object, **others: object) -> JsonObject:
        """Parse a JSON object."""
        if type(payload) is not dict:
            raise ValueError(f"{self._label}: expected a JSON object, got {_name_type(payload)}")
        if self.is_open:
            return self._decode_open(payload)
        value, used = self.read(payload, others)
        if used != len(payload):
            unknown = min(payload.keys() - self.keys)
            raise ValueError(f"{self._label}: unknown key {unknown!r}")
        return value

    def read(self, payload: Json, values: dict[str, object]) -> tuple[JsonObject, int]:
        """Return the value, with other `values`, and how many keys it was read from."""
        used = len(self._constants)
        for key, constant in self._constants.items():
            value = payload.get(key, _MISSING)
            if type(value) is not type(constant) or value != constant:
                raise ValueError(f"{self._label}: invalid {key!r}: expected {constant!r}")
        for name, inner in self._flat:
            values[name], count = inner.read(payload, {})
            used += count
        for key, name, kind, convert, is_required, missing in self._reads:
            value = payload.get(key, _MISSING)
            if value is not _MISSING:
                values[name] = value if type(value) is kind else convert(value)
                used += 1
            elif is_required:
                raise ValueError(f"{self._label}: missing {key!r}")
            elif missing is not _MISSING:
                values[name] = missing
        return self._build(**values), used

    def _decode_open(self, payload: Json) -> JsonObject:
        values: dict[str, object] = {}
        problems: dict[str, str] = {}
        for key, name, kind, convert, is_required, _ in self._reads:
            value = payload.get(key, _MISSING)
            if value is _MISSING:
                if is_required:
                    problems[key] = f"{self._label}: missing {key!r}"
                continue
            try:
                values[name] = value if type(value) is kind else convert(value)
            except _PartialError as error:
                values[name], problems[key] = error.value, str(error)
            except ValueError as error:
                problems[key] = str(error)
        result: Any = self._build(**values)
        result.problems.update(problems)
        return result  # type: ignore[no-any-return] # as in `decode`

    def encode(self, value: object) -> Json:
        """Serialize to a JSON object."""
        payload = self._constants.copy()
        for name, inner in self._flat:
            payload |= inner.encode(getattr(value, name))
        for name, key, convert, is_always_written, default in self._writes:
            item = getattr(value, name)
            if is_always_written or (item is not default and item != default):
                payload[key] = item if convert is None else convert(item)
        return payload


class _PartialError(ValueError):
    """Partly invalid value; `value` has the valid part."""

    def __init__(self, value: object, problem: str) -> None:
        super().__init__(problem)
        self.value = value


_plans: dict[type[JsonObject], _Plan] = {}


def _get_plan(cls: type[JsonObject]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _Plan(cls, cls.json_label)
    return plan


def _plan_field(
    member: dataclasses.Field[Any], storage: _Storage, hint: object, label: str, *, is_open: bool
) -> _Field:
    default = member.default
    if member.default_factory is not dataclasses.MISSING:
        default = member.default_factory()
    is_required = storage.required or (
        default is dataclasses.MISSING and storage.missing is _MISSING
    )
    key = storage.key or member.name
    form = _get_form(hint, f"{label}: invalid {key!r}", may_be_null=is_required or is_open)
    is_always_written = is_required or storage.missing is not _MISSING
    return _Field(member.name, key, form, is_required, storage.missing, is_always_written, default)


def _get_form(hint: Any, subject: str, *, may_be_null: bool) -> _Form:  # noqa: ANN401 - any type
    """Choose how values of a type are stored. `subject` starts the error for an invalid one."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in {Union, types.UnionType}:
        (inner,) = (item for item in arguments if item is not types.NoneType)
        form = _get_form(inner, subject, may_be_null=False)
        return _allow_null(form) if may_be_null else form
    if origin is Annotated:
        return _get_limited_form(arguments[1], subject)
    if origin is tuple:
        return _get_list_form(arguments[0], subject)
    kind = type(arguments[0]) if origin is Literal else origin
    if issubclass(kind, JsonObject):
        plan, check = _get_plan(kind), partial(_validate_type, dict, subject)
        return _Form(None, lambda value: plan.decode(check(value)), plan.encode)
    return _Form(kind, partial(_validate_type, kind, subject))


def _get_limited_form(limit: Minimum | Converter, subject: str) -> _Form:
    if isinstance(limit, Minimum):
        return _Form(None, partial(_validate_minimum, limit.least, subject))
    check, convert = partial(_validate_type, limit.kind, subject), limit.decode
    return _Form(None, lambda value: convert(check(value), subject), limit.encode)


def _get_list_form(hint: type, subject: str) -> _Form:
    check = partial(_validate_type, list, subject)
    if issubclass(hint, JsonObject):
        plan = _get_plan(hint)
        read, write = plan.decode, plan.encode
        decode_items: Decode = lambda items: tuple([read(item) for item in items])  # noqa: E731
        if plan.is_open:
            decode_items = partial(_decode_open_items, plan)
        return _Form(
            None,
            lambda value: decode_items(check(value)),
            lambda items: [write(item) for item in items],
        )
    if hint not in {str, int, Any}:
        raise TypeError(f"{subject}: lists of {hint} have no JSON form")
    if hint is Any:
        return _Form(None, lambda value: tuple(check(value)), list)
    return _Form(None, lambda value: _decode_scalars(check(value), hint, subject), list)


def _allow_null(form: _Form) -> _Form:
    kind, read, write = form.kind, form.decode, form.encode
    return _Form(
        kind,
        lambda value: None if value is None else value if type(value) is kind else read(value),
        write and (lambda item: None if item is None else write(item)),
    )


def _name_type(value: object) -> str:
    return type(value).__name__


def _validate_type(kind: type, subject: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if type(value) is not kind:
        raise ValueError(f"{subject}: expected {kind.__name__}, got {_name_type(value)}")
    return value


def _validate_minimum(least: int, subject: str, value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{subject}: expected int, got {_name_type(value)}")
    if value < least:
        raise ValueError(f"{subject}: expected at least {least}, got {value}")
    return value


def _decode_scalars(values: list[object], kind: type, subject: str) -> tuple[object, ...]:
    for value in values:
        if type(value) is not kind:
            expected = f"a list of {kind.__name__}"
            raise ValueError(f"{subject}: expected {expected}, got {_name_type(value)}")
    return tuple(values)


def _decode_open_items(plan: _Plan, values: list[object]) -> tuple[JsonObject, ...]:
    items: list[JsonObject] = []
    problem = ""
    for value in values:
        try:
            item: Any = plan.decode(value)
        except ValueError as error:
            problem = problem or str(error)
        else:
            items.append(item)
            problem = problem or next(iter(item.problems.values()), "")
    if problem:
        raise _PartialError(tuple(items), problem)
    return tuple(items)
