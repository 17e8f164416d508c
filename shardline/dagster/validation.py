"""Mistakes that the declared schemas of a platform reveal when it loads."""

from collections.abc import Sequence

from shardline.dagster.expectations.chunks import columns_of
from shardline.dagster.expectations.suite import read_suite, validate_columns
from shardline.dagster.versions.definition import DeclarationError, DeclaredVersion, declaring
from shardline.hints import Hint
from shardline.schema.schema import Schema


def validate_schemas(declared: Sequence[DeclaredVersion]) -> None:
    """Raise DeclarationError if a schema contradicts a declaration or a suite.

    All inputs must be declared. Nothing is read but the suites: where a schema depends on a table
    or on a function that is called in the run, versions made of it are not validated.
    """
    schemas = resolve_schemas(declared)
    for version in declared:
        schema = schemas[version.name]
        if version.suite is None or schema is None:
            continue
        columns = [column.name for column in columns_of(schema)]
        with declaring(version.name):
            suite = read_suite(version.suite, version.name)
            validate_columns(version.suite, suite, columns)


def resolve_schemas(declared: Sequence[DeclaredVersion]) -> dict[str, Schema | None]:
    """Return the schema of each version, None if it cannot be known before a run."""
    versions = {version.name: version for version in declared}
    schemas: dict[str, Schema | None] = {}

    def resolve(version: DeclaredVersion, path: tuple[str, ...]) -> None:
        if version.name in path:
            cycle = " -> ".join((*path[path.index(version.name) :], version.name))
            raise DeclarationError(
                f"{version.name}: input of itself ({cycle})",
                code="circular-input",
                hint=Hint.of("change an input of one of these versions"),
                version=version.name,
            )
        for name in version.inputs:
            if name not in schemas:
                resolve(versions[name], (*path, version.name))
        with declaring(version.name):
            schemas[version.name] = version.derive_schema(schemas)

    for version in declared:
        if version.name not in schemas:
            resolve(version, ())
    return schemas


def validate_exports(declared: Sequence[DeclaredVersion]) -> None:
    """Raise DeclarationError if two versions export to the same path."""
    known = dict[str, str]()
    for version in declared:
        for path in version.exports:
            other = known.setdefault(str(path.resolve()), version.name)
            if other != version.name:
                raise DeclarationError(
                    f"{version.name}: exports to the path of {other}",
                    code="duplicate-export",
                    hint=Hint.of("export one of them to another path"),
                    path=path,
                    version=version.name,
                )
