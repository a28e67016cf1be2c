"""What all models of a pipeline file share."""

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
    """Annotation of a union that a field tells apart: its JSON schema asks for what that field's value needs.

    `oneOf`, which pydantic writes, would only say of any mistake inside that nothing fits; with `if` and `then` the
    key and the line of the mistake are reported (`dg check yaml`, editors).
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
