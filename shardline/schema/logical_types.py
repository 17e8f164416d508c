"""Logical types: the meaning of values beyond their kind, such as text or images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from shardline.codec import JsonObject
from shardline.errors import InvalidTypeError, SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.types import Kind
from shardline.schema import shapes
from shardline.schema.shapes import StoredShape
from shardline.text import format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shardline.canonical_json import Json
    from shardline.kernel.types import Buffer

Encoding: TypeAlias = Literal["png", "jpeg"]

ITEM_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8, "bfloat16": 2,
}  # fmt: skip
"""Dtypes of raw arrays, by NumPy name, with their item size in bytes."""

SIGNATURES: dict[str, bytes] = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}
"""Leading bytes of the files of each encoding."""


@dataclass(frozen=True, slots=True)
class Text(JsonObject):
    """UTF-8 text."""

    json_label: ClassVar = "a meaning"
    json_constants: ClassVar = {"is": "text"}
    kinds: ClassVar[tuple[Kind, ...]] = ("bytes",)

    def __str__(self) -> str:
        return "text"


@dataclass(frozen=True, slots=True)
class Category(JsonObject):
    """One of several classes.

    For int64, `labels` name the numbers 0, 1, 2 and so on. For bytes, they are the allowed texts.
    Without labels, any number or any UTF-8 text is allowed.
    """

    json_label: ClassVar = "a meaning"
    json_constants: ClassVar = {"is": "category"}
    labels: tuple[str, ...] | None = None
    kinds: ClassVar[tuple[Kind, ...]] = ("bytes", "int64")

    def __post_init__(self) -> None:
        """Raise SchemaMismatchError for invalid or duplicate labels."""
        if self.labels is None:
            return
        labels: object = self.labels
        if isinstance(labels, str):
            raise _invalid("category labels: expected a tuple of texts, got a text")
        object.__setattr__(self, "labels", tuple(self.labels))
        if not self.labels:
            raise _invalid("category without labels", "name its labels, or leave them out")
        if len(set(self.labels)) < len(self.labels):
            raise _invalid("duplicate label of a category")
        for label in self.labels:
            validate_text("a label of a category", label)

    def __str__(self) -> str:
        return "category" if self.labels is None else f"category of {len(self.labels)} labels"


@dataclass(frozen=True, slots=True)
class Embedding(JsonObject):
    """Vector that represents an object. The feature's shape gives its length."""

    json_label: ClassVar = "a meaning"
    json_constants: ClassVar = {"is": "embedding"}
    kinds: ClassVar[tuple[Kind, ...]] = ("float",)

    def __str__(self) -> str:
        return "embedding"


@dataclass(frozen=True, slots=True)
class Image(JsonObject):
    """Complete image file."""

    json_label: ClassVar = "a meaning"
    json_constants: ClassVar = {"is": "image"}
    encoding: Encoding
    kinds: ClassVar[tuple[Kind, ...]] = ("bytes",)

    def __post_init__(self) -> None:
        """Raise SchemaMismatchError for an unknown encoding."""
        if self.encoding not in get_args(Encoding):
            raise _invalid(
                f"unknown image encoding {self.encoding!r}, expected {' or '.join(SIGNATURES)}",
                "leave out the meaning for other encodings",
            )

    def __str__(self) -> str:
        return f"{self.encoding} image"


@dataclass(frozen=True, slots=True)
class Array(JsonObject):
    """Raw bytes of an array: little-endian, in row-major order."""

    json_label: ClassVar = "a meaning"
    json_constants: ClassVar = {"is": "array"}
    dtype: str
    shape: StoredShape
    kinds: ClassVar[tuple[Kind, ...]] = ("bytes",)

    def __post_init__(self) -> None:
        """Raise SchemaMismatchError for an unknown dtype or an invalid shape."""
        if self.dtype not in ITEM_BYTES:
            raise _invalid(f"unknown dtype {self.dtype!r}, expected {', '.join(ITEM_BYTES)}")
        object.__setattr__(self, "shape", shapes.validate_shape("an array", self.shape))

    def __str__(self) -> str:
        return f"{self.dtype} array {shapes.format_shape(self.shape)}"

    @property
    def unit_bytes(self) -> int:
        """Bytes of an array, or of one row if its first dimension is free."""
        return ITEM_BYTES[self.dtype] * shapes.unit(self.shape)

    @property
    def size_shown(self) -> str:
        """Size of an array as text, such as `a multiple of 12 bytes`."""
        multiple = "" if shapes.is_fixed(self.shape) else "a multiple of "
        return f"{multiple}{format_count(self.unit_bytes, 'byte')}"

    def holds(self, size: int) -> bool:
        """Return True if `size` bytes can be such an array."""
        count, rest = divmod(size, ITEM_BYTES[self.dtype])
        return rest == 0 and shapes.holds(self.shape, count)

    def decode(self, data: Buffer, dtype: str | None = None) -> NDArray[Any]:
        """Return the array in the bytes, as a view.

        Raises SchemaMismatchError if `dtype` is given and is not the declared dtype, or if the
        number of bytes does not fit the shape.
        """
        if dtype is not None and dtype != self.dtype:
            raise SchemaMismatchError(
                f"cannot read an array of {self.dtype} as {dtype}",
                code="dtype-mismatch",
                hint=Hint.of(f"read it as {self.dtype}, then convert"),
            )
        size = memoryview(data).nbytes
        if not self.holds(size):
            raise SchemaMismatchError(
                f"{self}: expected {self.size_shown}, got {size}", code="length-mismatch"
            )
        rows = [-1 if length is None else length for length in self.shape]
        return np.frombuffer(data, _little_endian(self.dtype)).reshape(rows)

    def encode(self, array: NDArray[Any]) -> bytes:
        """Return the bytes of an array. Its dtype and shape must be those declared here."""
        converted = np.asarray(array)
        if converted.dtype.name != self.dtype:
            raise SchemaMismatchError(
                f"array of {converted.dtype.name}, expected {self.dtype}",
                code="dtype-mismatch",
                hint=Hint.of("convert it first"),
            )
        if len(converted.shape) != len(self.shape) or any(
            expected not in (None, length)
            for expected, length in zip(self.shape, converted.shape, strict=True)
        ):
            actual, expected = map(shapes.format_shape, (converted.shape, self.shape))
            raise SchemaMismatchError(
                f"array of shape {actual}, expected {expected}",
                code="shape-mismatch",
                hint=Hint.of("reshape it first"),
            )
        return converted.astype(_little_endian(self.dtype), copy=False).tobytes()


LogicalType: TypeAlias = Text | Category | Embedding | Image | Array


def _little_endian(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    if name == "bfloat16":
        # NumPy lacks bfloat16. Users of such arrays have ml_dtypes installed.
        import ml_dtypes  # noqa: PLC0415

        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        dtype = np.dtype(name).newbyteorder("<")
    return dtype


def parse_logical_type(payload: Json, subject: str) -> LogicalType:
    """Parse logical-type JSON. Raises ValueError if it is invalid."""
    name = payload.get("is")
    if type(name) is not str:
        raise ValueError(f"{subject}: missing 'is'")
    if name not in _LOGICAL_TYPES:
        raise _invalid(f"{subject}: unknown to this release ({name!r})")
    return _LOGICAL_TYPES[name].from_dict(payload)


_LOGICAL_TYPES: dict[str, type[LogicalType]] = {
    "text": Text,
    "category": Category,
    "embedding": Embedding,
    "image": Image,
    "array": Array,
}


def validate_text(subject: str, text: str) -> None:
    """Raise an error for text that cannot be encoded as UTF-8."""
    if not isinstance(text, str):
        raise InvalidTypeError(f"{subject}: expected text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaMismatchError(
            f"{subject}: cannot be written as UTF-8 ({text!r})", code="invalid-schema"
        ) from None


def _invalid(problem: str, advice: str = "") -> SchemaMismatchError:
    """Build the error for an invalid logical type."""
    hint = Hint.of(advice) if advice else None
    return SchemaMismatchError(problem, code="invalid-logical-type", hint=hint)
