"""The base of all models of a pipeline file, and types that options of several of them have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from jobs.schema.types import parse_type
from resources.config_files.mistakes import Mistake, Mistakes, refuse
from resources.config_files.models import Options
from resources.errors import ConfigurationError


class Spec(Options):
    """A part of a pipeline file."""


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


def _compiled(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        refuse([Mistake((), f"{text!r} is not a regular expression: {problem}")])
    return text


def _each_once(names: list[str]) -> list[str]:
    twice = [number for number, name in enumerate(names) if name in names[:number]]
    refuse(Mistake((number,), f"{names[number]} is named twice", "name it once") for number in twice)
    return names


def _of_a_type(text: str) -> str:
    try:
        parse_type(text)
    except ConfigurationError as problem:
        raise Mistakes([Mistake((), problem.what, problem.remedy, stand_in="string")]) from None
    return text


# A regular expression; names of which none stands twice; the type of a column (`jobs.schema.types`).
Expression = Annotated[str, AfterValidator(_compiled)]
Names = Annotated[list[str], AfterValidator(_each_once)]
TypeText = Annotated[str, AfterValidator(_of_a_type)]
