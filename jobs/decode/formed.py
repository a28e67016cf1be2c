"""Values that nobody has read by their form yet: results of a transform, whole records, decoders of other packages."""

from __future__ import annotations

import pyarrow as pa

from jobs.decode.base import Decoded, DecodeError, Decoder
from jobs.decode.forms import all_in_form
from jobs.decode.verdicts import Verdicts
from jobs.schema.leaves import with_leaves
from jobs.schema.types import form_of, inside


def has_forms(kind: pa.DataType) -> bool:
    """Whether a field inside the type has a form (`jobs.decode.forms`)."""
    return any(form_of(field) or has_forms(field.type) for field in inside(kind))


class Formed:
    """A decoder around another one, which knows nothing of forms."""

    def __init__(self, inner: Decoder) -> None:
        self.type, self._inner = inner.type, inner

    def decode(self, raw: pa.Array) -> Decoded:
        decoded, found = self._inner.decode(raw), Verdicts(len(raw))
        found.add(decoded)
        values, errors = formed(decoded.values, self.type)
        for row, error in errors.items():
            found.refuse(row, error)
        return found.decoded(values)


def formed(values: pa.Array, kind: pa.StructType) -> tuple[pa.Array, dict[int, DecodeError]]:
    """The values in the forms that the fields of `kind` have; null, with an error, for those that have not the form."""
    try:
        return with_leaves(values, pa.field("", kind), _in_form), {}
    except pa.ArrowInvalid as problem:
        if len(values) == 1:
            return pa.nulls(1, values.type), {0: DecodeError("type", str(problem))}
    half = len(values) // 2
    (first, bad), (second, others) = (formed(part, kind) for part in (values[:half], values[half:]))
    return pa.concat_arrays([first, second]), {**bad, **{half + row: error for row, error in others.items()}}


def _in_form(values: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """Leaves in the form of their field; raises ArrowInvalid, which names the column."""
    form = form_of(field)
    if not form:
        return values
    try:
        return all_in_form(values, form)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(f"column {path}: expected {form}, found a value that is none") from None
