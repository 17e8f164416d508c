"""The options of a combination: which pairs there are, and what becomes of them.

Each option is a field of `CombineSpec`. Its declaration has all that the rest of the code must know
of an option: the default, how to read what a caller gives, its JSON in a log entry, its arguments
of `shardline combine`, and if it chooses among pairs. A new option is a field here, a key of
`PairOptions`, an option of the command line, and the code that applies it to pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from difflib import get_close_matches
from inspect import signature
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, get_args

from shardline.arguments import validate_choice, validate_minimum
from shardline.errors import InvalidArgumentError, SchemaMismatchError, UnknownArgumentError
from shardline.hints import Hint, Option
from shardline.kernel.types import Column
from shardline.log.parameters import CombineParameters, StoredUDF
from shardline.pairing.pair_features import (
    PairNaming,
    combine_schemas,
    name_features,
    refuse_same_names,
    validate_has_features,
)
from shardline.schema.predicate import Predicate
from shardline.udf.predicate_filter import PredicateFilter, get_stored_predicate
from shardline.udf.transform import BoundUDFs, Transform
from shardline.udf.udf_declaration import FunctionUDF, describe_udf, is_deterministic, is_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Unpack

    from shardline.canonical_json import Json
    from shardline.pairing.pair_features import OnCollision, PairFeatureNames
    from shardline.schema.schema import Feature, Key, Schema
    from shardline.udf import UDF

    FindUDFs: TypeAlias = Callable[[Sequence[StoredUDF]], Sequence[UDF]]


JoinType: TypeAlias = Literal["inner", "left"]
JoinKeys: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
CombineMode: TypeAlias = Literal["materialized", "virtual"]
UNKNOWN_FUNCTION = "MODULE:OBJECT"
"""Stands for a function of which an entry does not say where it is."""
_KEY_KINDS = ("int64", "bytes")


class PairOptions(TypedDict, total=False):
    """The options of a combination as keyword arguments, without the functions of new features.

    `on` is a feature of both sides, several of them, or names of the left with those of the right.
    `where` is a function, or a predicate on features of the pair, `left.NAME` or `right.NAME`.
    """

    on_collision: OnCollision
    left_prefix: str
    right_prefix: str
    on: JoinKeys
    how: JoinType
    where: UDF | str | None
    unordered: bool
    limit: int | None
    sample: int | None
    seed: int | None


class SpecOptions(PairOptions, total=False):
    """All options of a combination as keyword arguments; see `CombineSpec`."""

    fields: UDF | Sequence[UDF]


def _get_same(value: Any, *_: object) -> Any:  # noqa: ANN401 - any value of an option
    return value


def _list_text(value: Any) -> Iterator[str | None]:  # noqa: ANN401 - any JSON value
    yield None if value is True else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFormat:
    """How an option is read from a caller, stored in an entry, and written for the command line.

    `key` is the stored name of the option and `flag` its command-line option, where these differ.
    `rule` gives the JSON that is hashed into shard names, `parameter` that next to it in an entry;
    an option has the first, the second or both. `is_stored` decides if it is in the entry: unless
    set, if it differs from the default. `decode` reads the parameter if there is one, else the
    rule. `arguments` gives the values of the command-line option for stored JSON, None for a flag.
    """

    key: str = ""
    flag: str = ""
    parse: Callable[[Any], Any] = _get_same
    rule: Callable[[Any, str], object] | None = _get_same
    parameter: Callable[[Any], object] | None = None
    is_stored: Callable[[CombineSpec], bool] | None = None
    decode: Callable[[Any, FindUDFs], Any] = _get_same
    arguments: Callable[[Any], Iterator[str | None]] = _list_text
    chooses: bool = False
    is_virtual: bool = True


def _format(**declared: Any) -> dict[str, OptionFormat]:  # noqa: ANN401 - the fields of OptionFormat
    return {"format": OptionFormat(**declared)}


def _list_key_pairs(on: object) -> tuple[tuple[str, str], ...]:
    if isinstance(on, str):
        return ((on, on),)
    pairs: list[tuple[object, object]] = []
    if isinstance(on, Mapping):
        pairs += on.items()
    elif isinstance(on, Iterable):
        pairs += [(name, name) for name in on]
    named = [
        (left, right) for left, right in pairs if isinstance(left, str) and isinstance(right, str)
    ]
    if not isinstance(on, Iterable) or len(named) < len(pairs):
        raise InvalidArgumentError(
            f"on: expected feature names, got {type(on).__name__}",
            code="invalid-type",
            hint=Hint.of(
                "give a name, a list of names, or a dict from names of the left to names of the "
                "right"
            ),
        )
    return tuple(named)


def _make_filter(given: Any) -> Any:  # noqa: ANN401 - validated with the other functions
    return PredicateFilter(Predicate(given)) if isinstance(given, str) else given


def _find_filter(stored: Json, find: FindUDFs) -> UDF | str | None:
    predicate = get_stored_predicate(stored.get("identity"))
    return predicate or next(iter(find([_describe_filter(stored)])), None)


def _list_filters(stored: Json) -> Iterator[str]:
    predicate = get_stored_predicate(stored.get("identity"))
    return _list_functions([stored]) if predicate is None else iter([predicate])


def _list_udfs(given: object) -> tuple[object, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _get_identity(udf: UDF, run: str) -> Json:
    """Return all that pairs depend on of a function; `run` replaces an unknown identity."""
    identity = udf.identity()
    declared: Json = {"features": [feature.to_dict() for feature in udf.features]}
    declared |= {} if is_deterministic(udf) else {"deterministic": False}
    return declared | ({"run": run} if identity is None else {"identity": identity})


def _list_functions(stored: Sequence[Json]) -> Iterator[str]:
    for udf in stored:
        yield (udf.get("identity") or {}).get("function") or UNKNOWN_FUNCTION


def _describe_filter(stored: Json) -> StoredUDF:
    """Describe a stored filter as `describe_udf` does; its entry has no other description."""
    identity = stored.get("identity")
    function = str((identity or {}).get("function", "")).rpartition(":")[2]
    return StoredUDF(
        label=f"function {function!r}" if function else "the function that chose pairs",
        features=tuple(feature["name"] for feature in stored["features"]),
        identity=identity,
        deterministic=stored.get("deterministic") is not False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSpec:
    """The options of a combination: all pairs, unless an option chooses among them.

    With `on`, the key features of both records are the same, given as pairs of left and right. With
    `how` "left", a record of the left without a match is there once, alone. With `unordered` both
    sides are the same records, and each two different ones are paired once. `where` chooses among
    the pairs, by a function or a predicate, `fields` make more features of them. `limit` takes the
    first, `sample` some of all. Features that both sides have are named by `on_collision` and the
    prefixes.
    """

    on_collision: OnCollision = field(default="refuse", metadata=_format(is_stored=lambda _: True))
    left_prefix: str = field(default="", metadata=_format())
    right_prefix: str = field(default="", metadata=_format())
    on: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=_format(
            parse=_list_key_pairs,
            rule=lambda on, _: [list(pair) for pair in on],
            decode=lambda stored, _: dict(stored),
            arguments=lambda stored: ("=".join(dict.fromkeys(pair)) for pair in stored),
            chooses=True,
            is_virtual=False,
        ),
    )
    how: JoinType = field(default="inner", metadata=_format(is_stored=lambda spec: bool(spec.on)))
    where: UDF | None = field(
        default=None,
        metadata=_format(
            parse=_make_filter,
            rule=_get_identity,
            decode=_find_filter,
            arguments=_list_filters,
            chooses=True,
            is_virtual=False,
        ),
    )
    unordered: bool = field(default=False, metadata=_format(key="once"))
    fields: tuple[UDF, ...] = field(
        default=(),
        metadata=_format(
            flag="--udf",
            parse=_list_udfs,
            rule=lambda udfs, run: [_get_identity(udf, run) for udf in udfs],
            parameter=lambda udfs: [describe_udf(udf).to_dict() for udf in udfs],
            decode=lambda stored, find: find([StoredUDF.from_dict(udf) for udf in stored]),
            arguments=_list_functions,
            is_virtual=False,
        ),
    )
    limit: int | None = field(
        default=None,
        metadata=_format(rule=None, parameter=_get_same, chooses=True, is_virtual=False),
    )
    sample: int | None = field(
        default=None,
        metadata=_format(rule=None, parameter=_get_same, chooses=True, is_virtual=False),
    )
    seed: int | None = field(
        default=None,
        metadata=_format(
            rule=None,
            parameter=lambda seed: seed or 0,
            is_stored=lambda spec: spec.sample is not None,
        ),
    )

    @classmethod
    def of(cls, **options: Unpack[SpecOptions]) -> Self:
        """Return the spec of options as callers give them. Raises InvalidArgumentError."""
        return cls(**{name: OPTIONS[name].parse(value) for name, value in options.items()})

    @classmethod
    def from_entry(cls, parameters: Json, find_udfs: FindUDFs) -> Self:
        """Return the spec of a log entry, with its functions as `find_udfs` finds them."""
        stored: Json = {}
        for name, option in OPTIONS.items():
            source = parameters["rule"] if option.parameter is None else parameters
            key = option.key or name
            if key in source:
                stored[name] = option.decode(source[key], find_udfs)
        return cls.of(**stored)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        self.naming  # noqa: B018 - validates itself
        validate_choice("how", self.how, get_args(JoinType))
        if self.how == "left" and not self.on:
            raise InvalidArgumentError(
                "how: a left join needs key features",
                code="missing-argument",
                hint=Hint.of("name the key features with ", Option("on")),
            )
        if self.how == "left" and self.unordered:
            raise InvalidArgumentError(
                "unordered: cannot be combined with a left join",
                code="conflicting-arguments",
                hint=Hint.of("leave out ", Option("unordered"), " or ", Option("how")),
            )
        for name, least in (("limit", 1), ("sample", 1), ("seed", 0)):
            _validate_count(name, getattr(self, name), least)
        if self.seed is not None and self.sample is None:
            raise InvalidArgumentError(
                "seed: only a sample has a seed",
                code="missing-argument",
                hint=Hint.of("set ", Option("sample"), ", or leave out ", Option("seed")),
            )
        others = [name for name in self.given if OPTIONS[name].chooses and name != "sample"]
        if self.sample is not None and others:
            raise InvalidArgumentError(
                f"sample: cannot be combined with {' or '.join(others)}",
                code="conflicting-arguments",
                hint=Hint.of("a sample is taken of all pairs: leave out ", Option("sample")),
            )
        self._validate_udfs()

    def _validate_udfs(self) -> None:
        for option, udf in (("where", self.where), *(("fields", udf) for udf in self.fields)):
            if udf is not None and not is_udf(udf):
                raise InvalidArgumentError(
                    f"{option}: the function does not declare its features",
                    code="undeclared-udf",
                    hint=Hint.of("wrap the function in batch_udf(...) or record_udf(...)"),
                )
        if self.where is not None and (
            len(self.where.features) != 1
            or self.where.features[0].kind != "int64"
            or self.where.features[0].shape
        ):
            raise InvalidArgumentError(
                f"where: {self.where.label} must declare a single int64 feature",
                code="invalid-filter",
                hint=Hint.of("return 1 for a pair to keep and 0 for a pair to drop"),
            )

    @property
    def naming(self) -> PairNaming:
        """What to do about features that both sides have."""
        return PairNaming(self.on_collision, self.left_prefix, self.right_prefix)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that differ from their defaults."""
        return tuple(
            one.name for one in dataclass_fields(self) if getattr(self, one.name) != one.default
        )

    @property
    def is_incremental(self) -> bool:
        """Return True if what is made of some pairs does not depend on the other pairs."""
        return self.limit is None and self.sample is None

    @property
    def chooses(self) -> bool:
        """Return True if the two records of a pair do not follow from its number."""
        return any(OPTIONS[name].chooses for name in self.given)

    @property
    def udfs(self) -> tuple[UDF, ...]:
        """The functions and tables that choose among pairs or make features of them."""
        return self.fields if self.where is None else (self.where, *self.fields)

    def settle(self) -> CombineSpec:
        """Return the spec with its tables read."""
        where = None if self.where is None else self.where.settled()
        return replace(self, where=where, fields=tuple(udf.settled() for udf in self.fields))

    def _list_stored(self) -> Iterator[tuple[str, OptionFormat, Any]]:
        given = self.given
        for name, option in OPTIONS.items():
            if name in given if option.is_stored is None else option.is_stored(self):
                yield option.key or name, option, getattr(self, name)

    def get_rule(self, run: str) -> Json:
        """Return the JSON that is hashed into shard names.

        `run` replaces the identity of a function that has none.
        """
        stored = self._list_stored()
        return {key: option.rule(value, run) for key, option, value in stored if option.rule}

    def get_parameters(self) -> Json:
        """Return the JSON that an entry has next to the rule."""
        stored = self._list_stored()
        return {key: option.parameter(value) for key, option, value in stored if option.parameter}


OPTIONS: Mapping[str, OptionFormat] = {
    one.name: one.metadata["format"] for one in dataclass_fields(CombineSpec)
}
"""The options by name, in the order of a command."""


def list_arguments(parameters: Json) -> Iterator[tuple[str, str | None]]:
    """List the command-line options of an entry's combination with their values; None for a flag.

    A function without a code version has the value `MODULE:OBJECT`.
    """
    defaults = {one.name: one.default for one in dataclass_fields(CombineSpec)}
    for name, option in OPTIONS.items():
        source = parameters if option.rule is None else parameters["rule"]
        value = source.get(option.key or name)
        if value and value != defaults[name]:
            for text in option.arguments(value):
                yield option.flag or f"--{name.replace('_', '-')}", text


def list_stored_udfs(parameters: CombineParameters) -> list[StoredUDF]:
    """List the functions and tables of an entry's combination. A predicate is neither."""
    where = parameters.rule.get("where")
    if where is None or get_stored_predicate(where.get("identity")) is not None:
        return list(parameters.udfs)
    return [*parameters.udfs, _describe_filter(where)]


def has_pair_selection(parameters: Json) -> bool:
    """Return True if a combination took some of the pairs, so that a row map lists them."""
    rule = parameters.get("rule", {})
    return any(
        option.chooses and (rule.get(option.key or name) or parameters.get(option.key or name))
        for name, option in OPTIONS.items()
    )


def validate_mode(mode: str, given: Iterable[str]) -> None:
    """Raise InvalidArgumentError for an unknown mode, or options that it does not have.

    A reader makes a virtual pair from its number alone.
    """
    validate_choice("mode", mode, get_args(CombineMode))
    names = [name for name in given if not OPTIONS[name].is_virtual]
    if mode == "virtual" and names:
        options = Hint.join(", ", (Hint.of(Option(name)) for name in names))
        raise InvalidArgumentError(
            f"a virtual combination contains all pairs: unsupported {', '.join(names)}",
            code="conflicting-arguments",
            hint=Hint.of("leave out ", options, ", or set ", Option("mode", "materialized")),
        )


def _validate_count(name: str, given: object, least: int) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise InvalidArgumentError(
            f"{name}: expected a whole number, got {type(given).__name__}", code="invalid-type"
        )
    validate_minimum(name, int(given), least)


def validate_option_names(
    function: Callable[..., object], options: Iterable[str], more: Iterable[str] = ()
) -> None:
    """Raise UnknownArgumentError for a keyword that a function with these options does not take.

    `more` are keywords that the function takes besides its own and those of a CombineSpec.
    """
    own = [
        parameter.name
        for parameter in signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    known = list(dict.fromkeys([*OPTIONS, *more, *own]))
    for name in options:
        if name not in known:
            near = get_close_matches(name.lower(), known, 1)
            raise UnknownArgumentError(
                f"{function.__name__}: unknown argument {name!r} (known: {', '.join(known)})",
                hint=Hint.of("did you mean ", Option(near[0]), "?") if near else None,
            )


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key features of both sides, in the same order."""

    left: tuple[Column, ...] = ()
    right: tuple[Column, ...] = ()


def get_key_columns(spec: CombineSpec, left: Schema, right: Schema) -> KeyColumns:
    """The features that must be the same in a pair. Raises SchemaMismatchError for unfit ones."""
    columns: tuple[list[Column], list[Column]] = ([], [])
    for names in spec.on:
        pair = [
            _get_key_column(*side)
            for side in zip(("left", "right"), (left, right), names, strict=True)
        ]
        if pair[0].kind != pair[1].kind:
            raise SchemaMismatchError(
                f"key {names[0]!r} of the left has type {pair[0].kind}, key {names[1]!r} of the "
                f"right {pair[1].kind}",
                code="key-mismatch",
                hint=Hint.of("migrate a side to the type of the other"),
                feature=names[0],
            )
        for one, into in zip(pair, columns, strict=True):
            into.append(Column(one.name, one.kind))
    return KeyColumns(tuple(columns[0]), tuple(columns[1]))


def _get_key_column(side: str, schema: Schema, name: str) -> Feature:
    feature = schema.find(name, sequence=False)
    if feature is None:
        known = (one.name for one in schema.features if not one.sequence)
        raise SchemaMismatchError(
            f"unknown feature {name!r} of the {side}",
            code="unknown-feature",
            hint=Hint.nearest(name, known, "features"),
            feature=name,
        )
    if feature.kind not in _KEY_KINDS or feature.shape:
        raise SchemaMismatchError(
            f"feature {name!r} of the {side} cannot be a key ({feature})",
            code="invalid-key",
            hint=Hint.of("choose a feature with a single int64 or bytes value"),
            feature=name,
        )
    return feature


@dataclass(frozen=True, slots=True)
class BoundCombineSpec:
    """A spec for records of two schemas, with its functions bound to the features of the pairs.

    All tasks share them; sent to another process they are made ready there.
    """

    spec: CombineSpec
    names: PairFeatureNames
    keys: KeyColumns = field(default_factory=KeyColumns)
    where: BoundUDFs | None = None
    fields: BoundUDFs | None = None

    def refuse_same_names(self) -> None:
        """Refuse to make pairs in which the context and the feature_lists get the same name.

        Those that were made are still read.
        """
        new = [feature.key for udf in self.spec.fields for feature in udf.features]
        refuse_same_names(self.names, new)

    def close(self) -> None:
        """Close the functions."""
        for udfs in (self.where, self.fields):
            if udfs is not None:
                udfs.__exit__()


def bind_plain_spec(
    spec: CombineSpec, left: Collection[Key], right: Collection[Key]
) -> BoundCombineSpec:
    """Bind a spec that reads no values: names are enough."""
    return BoundCombineSpec(spec, name_features(spec.naming, left, right))


def _list_side_names(names: PairFeatureNames) -> dict[str, str]:
    """Map `left.NAME` and `right.NAME` to names in a pair; a pair's own name comes first."""
    sides = [
        {key[1]: name for key, name in side.items() if name is not None and not key[0]}
        for side in (names.left, names.right)
    ]
    return {
        f"{label}.{name}": new
        for label, side in zip(("left", "right"), sides, strict=True)
        for name, new in side.items()
        if all(f"{label}.{name}" not in side.values() for side in sides)
    }


def bind_spec(spec: CombineSpec, left: Schema, right: Schema) -> tuple[BoundCombineSpec, Schema]:
    """Bind a spec to records of two schemas, and return it with the schema of the pairs.

    Raises SchemaMismatchError if names collide, or if a feature is missing that it needs.
    """
    for label, schema in (("the left", left), ("the right", right)):
        validate_has_features(label, schema)
    keys = get_key_columns(spec, left, right)
    shared = [name for name, other in spec.on if name == other]
    names = name_features(
        spec.naming,
        [feature.key for feature in left.features],
        [feature.key for feature in right.features],
        shared,
    )
    pairs = combine_schemas(left, right, names, optional=spec.how == "left")
    known = {feature.key for feature in pairs.features}
    new = [feature for udf in spec.fields for feature in udf.features]
    for feature in new:
        if feature.key in known:
            raise SchemaMismatchError(
                f"feature {feature.name!r} exists already",
                code="duplicate-feature",
                hint=Hint.of("rename the new feature"),
                feature=feature.name,
            )
        known.add(feature.key)
    after = replace(pairs, features=(*pairs.features, *new))
    chooser = spec.where
    if isinstance(chooser, PredicateFilter):
        chooser = chooser.alias(_list_side_names(names))
    for udf in spec.fields if chooser is None else (chooser, *spec.fields):
        if isinstance(udf, FunctionUDF | PredicateFilter):
            udf.validate(pairs)
    where = fields = None
    if chooser is not None:
        where = BoundUDFs(Transform(pairs, pairs, {}, (chooser,)))
    if spec.fields:
        fields = BoundUDFs(Transform(pairs, after, {}, spec.fields))
    return BoundCombineSpec(spec, names, keys, where, fields), after
