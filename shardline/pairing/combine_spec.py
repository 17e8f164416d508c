"""Options of a combination: which pairs there are, and which features they have.

Each option is declared once, as a field of `CombineSpec`: its default, how to parse and validate
it, its JSON in a log entry, and its option of `shardline combine`. A new option is a field here, a
key of `PairOptions`, and the code that applies it to pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, get_args

from shardline.arguments import validate_choice, validate_minimum
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint, Option
from shardline.log.parameters import CombineParameters, StoredUDF
from shardline.pairing.pair_features import (
    OnCollision,
    PairNaming,
)
from shardline.schema.predicate import Predicate
from shardline.udf.predicate_filter import PredicateFilter, get_stored_predicate
from shardline.udf.udf_declaration import describe_udf, is_deterministic, is_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Unpack

    from shardline.canonical_json import Json
    from shardline.udf import UDF

    FindUDFs: TypeAlias = Callable[[Sequence[StoredUDF]], Sequence[UDF]]


JoinType: TypeAlias = Literal["inner", "left"]
JoinKeys: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
CombineMode: TypeAlias = Literal["materialized", "virtual"]
UNKNOWN_FUNCTION = "MODULE:OBJECT"
"""Placeholder for a function whose location an entry does not have."""


class PairOptions(TypedDict, total=False):
    """Keyword arguments of a combination that choose and name pairs; see `CombineSpec`.

    `on` is a feature of both sides, several of them, or a dict from left to right names.
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
    """All keyword arguments of a combination; see `CombineSpec`."""

    udfs: UDF | Sequence[UDF]


def _get_same(value: Any, *_: object) -> Any:  # noqa: ANN401 - any value of an option
    return value


def _list_text(value: Any) -> Iterator[str | None]:  # noqa: ANN401 - any JSON value
    yield None if value is True else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFormat:
    """Declaration of an option: how it is parsed, stored and written as a command-line option.

    Attributes:
        help: Help text of the command-line option.
        metavar: Placeholder of its value.
        flag: Its name, if that is not the name of the field.
        choices: Valid values.
        minimum: Minimum of a number.
        key: Name in JSON, if that is not the name of the field.
        parse: Parses the value that a caller gives.
        rule: Returns the JSON that is hashed into shard names, None without such JSON.
        parameter: Returns the JSON that an entry has next to the rule, None without such JSON.
        is_stored: Returns True if an entry has the option. By default if it is not the default.
        decode: Parses the parameter, or the rule of an option without a parameter.
        arguments: Returns the command-line values of stored JSON, None for a flag.
        is_selection: The option selects some of the pairs.
        is_virtual: A virtual combination can have the option.
    """

    help: str
    metavar: str | None = None
    flag: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    key: str = ""
    parse: Callable[[Any], Any] = _get_same
    rule: Callable[[Any, str], object] | None = _get_same
    parameter: Callable[[Any], object] | None = None
    is_stored: Callable[[CombineSpec], bool] | None = None
    decode: Callable[[Any, FindUDFs], Any] = _get_same
    arguments: Callable[[Any], Iterator[str | None]] = _list_text
    is_selection: bool = False
    is_virtual: bool = True

    def validate(self, name: str, value: object) -> None:
        """Raise InvalidArgumentError for a value that is no choice, or less than the minimum."""
        if self.choices:
            validate_choice(name, value, self.choices)
        if self.minimum is None or value is None:
            return
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidArgumentError(
                f"{name}: expected a whole number, got {type(value).__name__}", code="invalid-type"
            )
        validate_minimum(name, int(value), self.minimum)


def _declare(help: str, **declared: Any) -> dict[str, OptionFormat]:  # noqa: A002, ANN401 - its fields
    return {"format": OptionFormat(help=help, **declared)}


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
            hint=Hint.of("give a name, a list of names, or a dict from left to right names"),
        )
    return tuple(named)


def _parse_filter(value: Any) -> Any:  # noqa: ANN401 - validated with the other functions
    return PredicateFilter(Predicate(value)) if isinstance(value, str) else value


def _find_filter(stored: Json, find: FindUDFs) -> UDF | str | None:
    predicate = get_stored_predicate(stored.get("identity"))
    return predicate or next(iter(find([_describe_filter(stored)])), None)


def _list_filters(stored: Json) -> Iterator[str]:
    predicate = get_stored_predicate(stored.get("identity"))
    return _list_functions([stored]) if predicate is None else iter([predicate])


def _parse_udfs(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _get_identity(udf: UDF, run: str) -> Json:
    """Return everything that pairs depend on of a function. `run` replaces an unknown identity."""
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
    """Options of a combination: all pairs, unless an option selects some of them.

    Attributes:
        on_collision: What to do about features of both sides: "refuse" raises an error, "prefix"
            adds the prefixes to all names, "keep-left" and "keep-right" drop those of a side.
        left_prefix: Prefix of the left features.
        right_prefix: Prefix of the right features.
        on: Key features that must be the same in both records, as pairs of left and right names.
        how: "left" adds each left record without a match as a pair of its own.
        where: A predicate on features of the pair, `left.NAME` or `right.NAME`, or a function that
            computes one int64: 1 for a pair to keep, 0 for others.
        unordered: Both sides are the same records, and each two different ones are paired once.
        udfs: Functions and tables that compute more features of a pair.
        limit: Number of pairs to take, the first ones.
        sample: Number of pairs to take, at random.
        seed: Seed of the sample.
    """

    on_collision: OnCollision = field(
        default="refuse",
        metadata=_declare(
            "Name, keep or refuse features that both sides have.",
            choices=get_args(OnCollision),
            is_stored=lambda _: True,
        ),
    )
    left_prefix: str = field(
        default="", metadata=_declare("Prefix of the features of LEFT.", metavar="TEXT")
    )
    right_prefix: str = field(
        default="", metadata=_declare("Prefix of the features of RIGHT.", metavar="TEXT")
    )
    on: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=_declare(
            "Pair only records with the same value of this feature. Repeatable.",
            metavar="KEY[=RIGHT_KEY]",
            parse=_list_key_pairs,
            rule=lambda on, _: [list(pair) for pair in on],
            decode=lambda stored, _: dict(stored),
            arguments=lambda stored: ("=".join(dict.fromkeys(pair)) for pair in stored),
            is_selection=True,
            is_virtual=False,
        ),
    )
    how: JoinType = field(
        default="inner",
        metadata=_declare(
            "With --on: keep only matches, or also the records of LEFT without one.",
            choices=get_args(JoinType),
            is_stored=lambda spec: bool(spec.on),
        ),
    )
    where: UDF | None = field(
        default=None,
        metadata=_declare(
            "Keep only pairs for which this is true, as in `shardline erase`. Or MODULE:OBJECT, a "
            "function that computes one int64: 1 to keep a pair, 0 to drop it.",
            metavar="PREDICATE",
            parse=_parse_filter,
            rule=_get_identity,
            decode=_find_filter,
            arguments=_list_filters,
            is_selection=True,
            is_virtual=False,
        ),
    )
    unordered: bool = field(
        default=False,
        metadata=_declare(
            "Pair each two different records once. Needs the same input on both sides.",
            key="once",
        ),
    )
    udfs: tuple[UDF, ...] = field(
        default=(),
        metadata=_declare(
            "Compute new features of a pair, as in `shardline extend`. Repeatable.",
            key="fields",
            metavar="MODULE:OBJECT",
            flag="--udf",
            parse=_parse_udfs,
            rule=lambda udfs, run: [_get_identity(udf, run) for udf in udfs],
            parameter=lambda udfs: [describe_udf(udf).to_dict() for udf in udfs],
            decode=lambda stored, find: find([StoredUDF.from_dict(udf) for udf in stored]),
            arguments=_list_functions,
            is_virtual=False,
        ),
    )
    limit: int | None = field(
        default=None,
        metadata=_declare(
            "Take the first N pairs. Not incremental.",
            metavar="N",
            minimum=1,
            rule=None,
            parameter=_get_same,
            is_selection=True,
            is_virtual=False,
        ),
    )
    sample: int | None = field(
        default=None,
        metadata=_declare(
            "Take N random pairs. Not incremental, and not with --on, --where or --limit.",
            metavar="N",
            minimum=1,
            rule=None,
            parameter=_get_same,
            is_selection=True,
            is_virtual=False,
        ),
    )
    seed: int | None = field(
        default=None,
        metadata=_declare(
            "Seed of the sample: the same seed takes the same pairs.",
            metavar="N",
            minimum=0,
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
        """Return the spec of a log entry. `find_udfs` finds its functions."""
        options: Json = {}
        for name, option in OPTIONS.items():
            source = parameters["rule"] if option.parameter is None else parameters
            key = option.key or name
            if key in source:
                options[name] = option.decode(source[key], find_udfs)
        return cls.of(**options)

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for options that contradict each other."""
        self.naming  # noqa: B018 - validates itself
        for name, option in OPTIONS.items():
            option.validate(name, getattr(self, name))
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
        if self.seed is not None and self.sample is None:
            raise InvalidArgumentError(
                "seed: only a sample has a seed",
                code="missing-argument",
                hint=Hint.of("set ", Option("sample"), ", or leave out ", Option("seed")),
            )
        others = [name for name in self.changed if OPTIONS[name].is_selection and name != "sample"]
        if self.sample is not None and others:
            raise InvalidArgumentError(
                f"sample: cannot be combined with {' or '.join(others)}",
                code="conflicting-arguments",
                hint=Hint.of("a sample is taken of all pairs: leave out ", Option("sample")),
            )
        self._validate_udfs()

    def _validate_udfs(self) -> None:
        for name, udf in (("where", self.where), *(("udfs", udf) for udf in self.udfs)):
            if udf is not None and not is_udf(udf):
                raise InvalidArgumentError(
                    f"{name}: the function does not declare its features",
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
        """Options that name the features of a pair."""
        return PairNaming(self.on_collision, self.left_prefix, self.right_prefix)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the options that differ from their defaults."""
        return tuple(name for name in OPTIONS if getattr(self, name) != DEFAULTS[name])

    @property
    def is_incremental(self) -> bool:
        """Return True if pairs do not depend on other pairs."""
        return self.limit is None and self.sample is None

    @property
    def is_selection(self) -> bool:
        """Return True if the number of a pair does not give the numbers of its two records."""
        return any(OPTIONS[name].is_selection for name in self.changed)

    @property
    def functions(self) -> tuple[UDF, ...]:
        """Functions and tables that select pairs or compute features of them."""
        return self.udfs if self.where is None else (self.where, *self.udfs)

    def settle(self) -> CombineSpec:
        """Return the spec with its tables read."""
        where = None if self.where is None else self.where.settled()
        return replace(self, where=where, udfs=tuple(udf.settled() for udf in self.udfs))

    def _list_stored(self) -> Iterator[tuple[str, OptionFormat, Any]]:
        changed = self.changed
        for name, option in OPTIONS.items():
            if name in changed if option.is_stored is None else option.is_stored(self):
                yield option.key or name, option, getattr(self, name)

    def get_rule(self, run: str) -> Json:
        """Return the JSON that is hashed into shard names.

        `run` replaces the identity of a function without one.
        """
        stored = self._list_stored()
        return {key: option.rule(value, run) for key, option, value in stored if option.rule}

    def get_parameters(self) -> Json:
        """Return the JSON that an entry has next to the rule."""
        stored = self._list_stored()
        return {key: option.parameter(value) for key, option, value in stored if option.parameter}


OPTIONS: Mapping[str, OptionFormat] = {
    item.name: item.metadata["format"] for item in dataclass_fields(CombineSpec)
}
"""Options by name, in the order of a command."""
DEFAULTS: Mapping[str, Any] = {item.name: item.default for item in dataclass_fields(CombineSpec)}


def get_flag(name: str) -> str:
    """Return the command-line option of an option."""
    return OPTIONS[name].flag or f"--{name.replace('_', '-')}"


def list_arguments(parameters: Json) -> Iterator[tuple[str, str | None]]:
    """List the command-line options of an entry with their values, None for a flag.

    A function without a code version has the value `MODULE:OBJECT`.
    """
    for name, option in OPTIONS.items():
        source = parameters if option.rule is None else parameters["rule"]
        stored = source.get(option.key or name)
        if stored and stored != DEFAULTS[name]:
            for text in option.arguments(stored):
                yield get_flag(name), text


def list_stored_udfs(parameters: CombineParameters) -> list[StoredUDF]:
    """List the functions and tables of an entry's combination. A predicate is neither."""
    where = parameters.rule.get("where")
    if where is None or get_stored_predicate(where.get("identity")) is not None:
        return list(parameters.udfs)
    return [*parameters.udfs, _describe_filter(where)]


def has_pair_selection(parameters: Json) -> bool:
    """Return True if an entry selected pairs, so that a row map lists them."""
    rule = parameters.get("rule", {})
    return any(
        option.is_selection and (rule.get(option.key or name) or parameters.get(option.key or name))
        for name, option in OPTIONS.items()
    )


def validate_mode(mode: str, options: Iterable[str]) -> None:
    """Raise InvalidArgumentError for an unknown mode, or for options that it cannot have.

    Readers compute a virtual pair from its number alone.
    """
    validate_choice("mode", mode, get_args(CombineMode))
    names = [name for name in options if not OPTIONS[name].is_virtual]
    if mode == "virtual" and names:
        unsupported = Hint.join(", ", (Hint.of(Option(name)) for name in names))
        raise InvalidArgumentError(
            f"a virtual combination contains all pairs: unsupported {', '.join(names)}",
            code="conflicting-arguments",
            hint=Hint.of("leave out ", unsupported, ", or set ", Option("mode", "materialized")),
        )
