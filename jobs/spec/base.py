"""The base of all models of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Spec(BaseModel):
    """Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class ByTag:
    """Annotation of a union with a discriminator field, for a JSON schema with `if` and `then`.

    With pydantic's `oneOf` every mistake inside would only be reported as "nothing fits"; with `if` and `then`,
    `dg check yaml` and editors report the key and the line of the mistake.
    """

    tag: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        choices: dict[str, Any] = core["choices"]
        models = handler(core)["oneOf"]
        return {
            "type": "object",
            "required": [self.tag],
            "properties": {self.tag: {"enum": list(choices)}},
            "allOf": [
                {"if": {"properties": {self.tag: {"const": value}}, "required": [self.tag]}, "then": model}
                for value, model in zip(choices, models, strict=True)
            ],
        }
