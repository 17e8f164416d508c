"""Which pairs there are, and what becomes of them: the options of a combination, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from inspect import signature
from numbers import Integral
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args

from shardline.arguments import validate_choice, validate_minimum
from shardline.errors import InvalidArgumentError, SchemaMismatchError, UnknownArgumentError
from shardline.hints import Hint, Option
from shardline.kernel.types import Column
from shardline.pairing.pair_features import (
    PairNaming,
    combine_schemas,
    name_features,
    refuse_same_names,
    validate_has_features,
)
from shardline.udf.transform import BoundUDFs, Transform
from shardline.udf.udf_declaration import is_deterministic, is_udf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Unpack

    from shardline.canonical_json import Json
    from shardline.pairing.pair_features import OnCollision, PairFeatureNames
    from shardline.schema.schema import Feature, Key, Schema
    from shardline.udf import UDF


JoinType: TypeAlias = Literal["inner", "left"]
JoinKeys: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
_KEY_KINDS = ("int64", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSpec:
    """All pairs, unless `on` names features that must be the same, as pairs of left and right.

    With `how` "left", a record of the left without a match is there once, alone. With `once` both
    sides are the same records, and each two different ones are paired once. `where` chooses among
    the pairs, `fields` make more features of them. `limit` takes the first, `sample` some of all.
    """

    naming: PairNaming = field(default_factory=PairNaming)
    on: tuple[tuple[str, str], ...] = ()
    how: JoinType = "inner"
    where: UDF | None = None
    fields: tuple[UDF, ...] = ()
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    once: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        validate_choice("how", self.how, get_args(JoinType))
        if self.how == "left" and not self.on:
            raise InvalidArgumentError(
                "how: a left join needs key features",
                code="missing-argument",
                hint=Hint.of("name the key features with ", Option("on")),
            )
        if self.how == "left" and self.once:
            raise InvalidArgumentError(
                "once: cannot be combined with a left join",
                code="conflicting-arguments",
                hint=Hint.of("leave out ", Option("once"), " or ", Option("how")),
            )
        for name, count, least in (
            ("limit", self.limit, 1),
            ("sample", self.sample, 1),
            ("seed", self.seed, 0),
        ):
            _validate_count(name, count, least)
        if self.sample is not None and (self.on or self.where or self.limit is not None):
            given = [name for name in ("on", "where", "limit") if getattr(self, name)]
            raise InvalidArgumentError(
                f"sample: cannot be combined with {' or '.join(given)}",
                code="conflicting-arguments",
                hint=Hint.of("a sample is taken of all pairs: leave out ", Option("sample")),
            )
        for option, maker in (("where", self.where), *(("fields", one) for one in self.fields)):
            if maker is not None and not is_udf(maker):
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
                f"where: {self.where.shown} must declare a single int64 feature",
                code="invalid-filter",
                hint=Hint.of("return 1 for a pair to keep and 0 for a pair to drop"),
            )

    @property
    def incremental(self) -> bool:
        """Whether what is made of some pairs does not depend on which others there are."""
        return self.limit is None and self.sample is None

    @property
    def chooses(self) -> bool:
        """Whether it takes more than counting to tell of which two records a pair is."""
        return bool(self.on) or self.where is not None or not self.incremental

    @property
    def makers(self) -> tuple[UDF, ...]:
        """The functions and tables that choose among pairs or make features of them."""
        return self.fields if self.where is None else (self.where, *self.fields)

    def settled(self) -> CombineSpec:
        """The same, with what lies outside of this process read, once."""
        where = None if self.where is None else self.where.settled()
        return replace(self, where=where, fields=tuple(one.settled() for one in self.fields))

    def to_dict(self, run: str) -> Json:
        """All that pairs depend on besides the records, as an entry tells it.

        `run` stands in for a function of which that cannot be told.
        """
        told = self.naming.to_dict()
        if self.on:
            told |= {"on": [list(pair) for pair in self.on], "how": self.how}
        if self.once:
            told["once"] = True
        if self.where is not None:
            told["where"] = _get_identity(self.where, run)
        if self.fields:
            told["fields"] = [_get_identity(one, run) for one in self.fields]
        return told


def _validate_count(name: str, given: object, least: int) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise InvalidArgumentError(
            f"{name}: expected a whole number, got {type(given).__name__}", code="invalid-type"
        )
    validate_minimum(name, int(given), least)


def _get_identity(fields: UDF, run: str) -> Json:
    told = fields.identity()
    declared: Json = {"features": [feature.to_dict() for feature in fields.features]}
    declared |= {} if is_deterministic(fields) else {"deterministic": False}
    return declared | ({"run": run} if told is None else {"identity": told})


class SpecOptions(TypedDict, total=False):
    """What the callers of a combination may say of its rule; see `Rule`.

    `on` is a feature of both sides, several of them, or names of the left with those of the right.
    """

    on_collision: OnCollision
    left_prefix: str
    right_prefix: str
    on: JoinKeys
    how: JoinType
    where: UDF | None
    fields: UDF | Sequence[UDF]
    limit: int | None
    sample: int | None
    seed: int
    once: bool


def validate_option_names(function: Callable[..., object], options: Iterable[str]) -> None:
    """Refuse what is no option of a function that takes these beside its own."""
    own = [
        one.name for one in signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY
    ]
    known = [*SpecOptions.__annotations__, *own]
    for name in options:
        if name not in known:
            near = get_close_matches(name.lower(), known, 1)
            meant = ("did you mean ", Option(near[0])) if near else ()
            raise UnknownArgumentError(
                f"{function.__name__}: unknown argument {name!r} (known: {', '.join(known)})",
                hint=Hint.of(*meant, "?") if meant else None,
            )


def make_spec(**options: Unpack[SpecOptions]) -> CombineSpec:
    """The rule of these options, with its tables read. Raises ValueError if they make none."""
    return declare_spec(**options).settled()


def declare_spec(**options: Unpack[SpecOptions]) -> CombineSpec:
    """Return the rule of these options, with no table read. Raises ValueError if they make none."""
    given = options.get("fields", ())
    fields: Sequence[UDF] = given if isinstance(given, list | tuple) else (given,)
    return CombineSpec(
        naming=PairNaming(
            options.get("on_collision", "refuse"),
            options.get("left_prefix", ""),
            options.get("right_prefix", ""),
        ),
        on=_list_key_pairs(options.get("on", ())),
        how=options.get("how", "inner"),
        where=options.get("where"),
        fields=tuple(fields),
        limit=options.get("limit"),
        sample=options.get("sample"),
        seed=options.get("seed", 0),
        once=options.get("once", False),
    )


def _list_key_pairs(on: object) -> tuple[tuple[str, str], ...]:
    if isinstance(on, str):
        return ((on, on),)
    pairs: list[tuple[object, object]] = []
    if isinstance(on, Mapping):
        pairs += on.items()
    elif isinstance(on, Iterable):
        pairs += [(name, name) for name in on]
    named = [
        (one, other) for one, other in pairs if isinstance(one, str) and isinstance(other, str)
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


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key features of both sides, in the same order."""

    left: tuple[Column, ...] = ()
    right: tuple[Column, ...] = ()


def get_key_columns(rule: CombineSpec, left: Schema, right: Schema) -> KeyColumns:
    """The features that must be the same in a pair. Raises SchemaMismatchError for unfit ones."""
    columns: tuple[list[Column], list[Column]] = ([], [])
    for names in rule.on:
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
    """How pairs are made. `where` and `fields` are the functions of the rule, if there are any.

    All tasks share them; sent to another process they are made ready there.
    """

    rule: CombineSpec
    names: PairFeatureNames
    keys: KeyColumns = field(default_factory=KeyColumns)
    where: BoundUDFs | None = None
    fields: BoundUDFs | None = None

    def refuse_same_names(self) -> None:
        """Refuse to make pairs in which the context and the feature_lists get the same name.

        Those that were made are still read.
        """
        new = [feature.key for one in self.rule.fields for feature in one.features]
        refuse_same_names(self.names, new)

    def close(self) -> None:
        """Let go of what the functions hold."""
        for makers in (self.where, self.fields):
            if makers is not None:
                makers.__exit__()


def bind_plain_spec(
    rule: CombineSpec, left: Collection[Key], right: Collection[Key]
) -> BoundCombineSpec:
    """The recipe of a rule that reads no values: names are enough."""
    return BoundCombineSpec(rule, name_features(rule.naming, left, right))


def bind_spec(rule: CombineSpec, left: Schema, right: Schema) -> tuple[BoundCombineSpec, Schema]:
    """The recipe for records of two schemas, and the schema of the pairs.

    Raises SchemaMismatchError where names collide, or where a feature is not there that is needed.
    """
    for shown, schema in (("the left", left), ("the right", right)):
        validate_has_features(shown, schema)
    keys = get_key_columns(rule, left, right)
    shared = [one for one, other in rule.on if one == other]
    names = name_features(
        rule.naming,
        [feature.key for feature in left.features],
        [feature.key for feature in right.features],
        shared,
    )
    pairs = combine_schemas(left, right, names, optional=rule.how == "left")
    there = {feature.key for feature in pairs.features}
    new = [feature for one in rule.fields for feature in one.features]
    for feature in new:
        if feature.key in there:
            raise SchemaMismatchError(
                f"feature {feature.name!r} exists already",
                code="duplicate-feature",
                hint=Hint.of("rename the new feature"),
                feature=feature.name,
            )
        there.add(feature.key)
    after = replace(pairs, features=(*pairs.features, *new))
    where = fields = None
    if rule.where is not None:
        where = BoundUDFs(Transform(pairs, pairs, {}, (rule.where,)))
    if rule.fields:
        fields = BoundUDFs(Transform(pairs, after, {}, rule.fields))
    return BoundCombineSpec(rule, names, keys, where, fields), after
