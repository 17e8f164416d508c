"""A combination of records of two schemas: what each side brings, and what is made of a pair."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.pairing.feature_names import (
    combined_schema,
    name_features,
    refuse_opaque,
    refuse_same_names,
)
from shardline.pairing.spec import KeyColumns, key_columns
from shardline.udf.transform import Makers, Transform

if TYPE_CHECKING:
    from collections.abc import Collection

    from shardline.pairing.feature_names import Key, Names
    from shardline.pairing.spec import Rule
    from shardline.schema.schema import Schema


@dataclass(frozen=True, slots=True)
class Recipe:
    """How pairs are made. `where` and `fields` are the functions of the rule, if there are any.

    All tasks share them; sent to another process they are made ready there.
    """

    rule: Rule
    names: Names
    keys: KeyColumns = field(default_factory=KeyColumns)
    where: Makers | None = None
    fields: Makers | None = None

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


def plain_recipe(rule: Rule, left: Collection[Key], right: Collection[Key]) -> Recipe:
    """The recipe of a rule that reads no values: names are enough."""
    return Recipe(rule, name_features(rule.naming, left, right))


def make_recipe(rule: Rule, left: Schema, right: Schema) -> tuple[Recipe, Schema]:
    """The recipe for records of two schemas, and the schema of the pairs.

    Raises SchemaMismatchError where names collide, or where a feature is not there that is needed.
    """
    for shown, schema in (("the left", left), ("the right", right)):
        refuse_opaque(shown, schema)
    keys = key_columns(rule, left, right)
    shared = [one for one, other in rule.on if one == other]
    names = name_features(
        rule.naming,
        [feature.key for feature in left.features],
        [feature.key for feature in right.features],
        shared,
    )
    pairs = combined_schema(left, right, names, optional=rule.how == "left")
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
        where = Makers(Transform(pairs, pairs, {}, (rule.where,)))
    if rule.fields:
        fields = Makers(Transform(pairs, after, {}, rule.fields))
    return Recipe(rule, names, keys, where, fields), after
