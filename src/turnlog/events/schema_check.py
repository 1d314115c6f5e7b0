"""Checks JSON values against a published JSON schema.

    documents = {id: schema}       the schema's document and all that it refers to, by the names that it uses
    check = compile_check(documents, "https://example.com/person.json#/$defs/Address")
    check(address, "$")            None, or the first error as (sentence, JSON path)

Only the keywords of `KEYWORDS` are known. Another one raises `ValueError` when it is compiled: a newer schema
is never checked in part. `unevaluatedProperties: false` counts the properties of the schema, of its
`$ref` and of its `allOf`. Formats are checked. A general library takes 60 ms for a message of A2UI, as it
tries every component of the catalog; here a property with one constant per branch (`component`, `call`)
selects the branch, which also gives an error that names the fault.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from turnlog.errors import quote

SchemaError = tuple[str, str]  # a sentence and a JSON path
Check = Callable[[Any, str], SchemaError | None]
Schema = Mapping[str, Any]

TYPE_NAMES = {
    "string": "a text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
# Words about a value that say nothing on its validity, and containers of definitions.
ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$defs", "title", "description", "default", "examples", "discriminator",
        "catalogId", "components", "functions",
    }
)  # fmt: skip

_CLOCK = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_MOMENT = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt]{_CLOCK}", re.ASCII)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*", re.ASCII)


def is_day(text: str) -> bool:
    match = _DAY.fullmatch(text)
    if match is None:
        return False
    try:
        date(*(int(part) for part in match.groups()))
    except ValueError:
        return False
    return True


def is_moment(text: str) -> bool:
    match = _MOMENT.fullmatch(text)
    return match is not None and is_day(match[1])


FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": is_day,
    "time": _TIME.fullmatch,
    "date-time": is_moment,
    "uri": _URI.fullmatch,
}


def is_json_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # which is an int in Python
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, JSON_TYPES[name])


JSON_TYPES: Mapping[str, Any] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def compile_check(documents: Mapping[str, Schema], root: str) -> Check:
    """Return the check of the schema at the reference `root`. Raise `ValueError` for an unknown keyword."""
    return SchemaCompiler(documents).compile_reference(root, "")


class SchemaCompiler:
    """Compiles each schema once, a reference when a value first needs it: schemas are recursive."""

    def __init__(self, documents: Mapping[str, Schema]) -> None:
        self._documents = documents
        self._checks: dict[str, Check] = {}

    def compile_reference(self, reference: str, base: str) -> Check:
        document, _, pointer = reference.partition("#")
        address = f"{document or base}#{pointer}"
        known = self._checks.get(address)
        if known is None:
            known = self._checks[address] = self.compile(*self._resolve(reference, base))
        return known

    def compile(self, schema: Schema, base: str) -> Check:
        checks: list[Check] = []
        for keyword, value in schema.items():
            if keyword in ANNOTATIONS:
                continue
            compile_keyword = KEYWORDS.get(keyword)
            if compile_keyword is None:
                raise ValueError(f"the keyword {keyword} is not known")
            checks += compile_keyword(self, value, schema, base)

        def check(value: Any, path: str) -> SchemaError | None:
            for one in checks:
                error = one(value, path)
                if error is not None:
                    return error
            return None

        return check

    def _resolve(self, reference: str, base: str) -> tuple[Schema, str]:
        document, _, pointer = reference.partition("#")
        schema: Any = self._documents[document or base]
        for name in pointer.split("/")[1:]:
            schema = schema[name]
        return schema, document or base

    def parts(self, schema: Schema, base: str) -> Iterator[tuple[Schema, str]]:
        """Yield a schema and those that always hold with it: its reference and its `allOf`."""
        yield schema, base
        if "$ref" in schema:
            yield from self.parts(*self._resolve(schema["$ref"], base))
        for part in schema.get("allOf", ()):
            yield from self.parts(part, base)

    # keywords

    def reference(self, value: str, _: Schema, base: str) -> Iterator[Check]:
        # Compiled with the first value: a function call has arguments that are function calls.
        yield lambda item, path: self.compile_reference(value, base)(item, path)

    def type(self, name: str, _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            return None if is_json_type(value, name) else (f"expected {TYPE_NAMES[name]}", path)

        yield check

    def const(self, wanted: Any, _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            return None if value == wanted else (f"expected {quote(wanted)}, got {quote(value)}", path)

        yield check

    def enum(self, known: Sequence[str], _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            if value in known:
                return None
            return f"expected one of {', '.join(known)}, got {quote(value)}", path

        yield check

    def pattern(self, text: str, _: Schema, __: str) -> Iterator[Check]:
        form = re.compile(text)

        def check(value: Any, path: str) -> SchemaError | None:
            if not isinstance(value, str) or (form.search(value) and not value.endswith("\n")):
                return None
            return f"expected a text like {text}, got {quote(value)}", path

        yield check

    def format(self, name: str, _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            if not isinstance(value, str) or FORMATS[name](value):
                return None
            return f"expected a {name}, got {quote(value)}", path

        yield check

    def minimum(self, least: float, _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            if not is_json_type(value, "number") or value >= least:
                return None
            return f"expected at least {least}", path

        yield check

    def min_items(self, least: int, _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            if not isinstance(value, list) or len(value) >= least:
                return None
            return f"expected at least {least} items", path

        yield check

    def items(self, schema: Schema, _: Schema, base: str) -> Iterator[Check]:
        check_item = self.compile(schema, base)

        def check(value: Any, path: str) -> SchemaError | None:
            if isinstance(value, list):
                for index, item in enumerate(value):
                    error = check_item(item, f"{path}[{index}]")
                    if error is not None:
                        return error
            return None

        yield check

    def required(self, names: Sequence[str], _: Schema, __: str) -> Iterator[Check]:
        def check(value: Any, path: str) -> SchemaError | None:
            if isinstance(value, dict):
                for name in names:
                    if name not in value:
                        return f"expected a field {name}", path
            return None

        yield check

    def properties(self, schemas: Mapping[str, Schema], _: Schema, base: str) -> Iterator[Check]:
        checks = {name: self.compile(schema, base) for name, schema in schemas.items()}

        def check(value: Any, path: str) -> SchemaError | None:
            if isinstance(value, dict):
                for name, item in value.items():
                    check_item = checks.get(name)
                    error = check_item(item, f"{path}.{name}") if check_item else None
                    if error is not None:
                        return error
            return None

        yield check

    def additional_properties(self, rule: Schema | bool, schema: Schema, base: str) -> Iterator[Check]:
        if rule is True:
            return
        known = frozenset(schema.get("properties", ()))
        if rule is False:
            yield refuse_other_fields(known)
            return
        check_item = self.compile(rule, base)

        def check(value: Any, path: str) -> SchemaError | None:
            if isinstance(value, dict):
                for name, item in value.items():
                    error = check_item(item, f"{path}.{name}") if name not in known else None
                    if error is not None:
                        return error
            return None

        yield check

    def unevaluated_properties(self, _: bool, schema: Schema, base: str) -> Iterator[Check]:
        known: set[str] = set()
        for part, __ in self.parts(schema, base):
            known.update(part.get("properties", ()))
        yield refuse_other_fields(frozenset(known))

    def all_of(self, schemas: Sequence[Schema], _: Schema, base: str) -> Iterator[Check]:
        for schema in schemas:
            yield self.compile(schema, base)

    def any_of(self, schemas: Sequence[Schema], _: Schema, base: str) -> Iterator[Check]:
        checks = [self.compile(schema, base) for schema in schemas]

        def check(value: Any, path: str) -> SchemaError | None:
            errors: list[SchemaError] = []
            for one in checks:
                error = one(value, path)
                if error is None:
                    return None
                errors.append(error)
            return choose_error(errors)

        yield check

    def one_of(self, schemas: Sequence[Schema], _: Schema, base: str) -> Iterator[Check]:
        selected = self._select_by_constant(schemas, base)
        if selected is not None:
            yield selected
            return
        checks = [self.compile(schema, base) for schema in schemas]

        def check(value: Any, path: str) -> SchemaError | None:
            errors: list[SchemaError] = []
            for one in checks:
                error = one(value, path)
                if error is not None:
                    errors.append(error)
            if len(errors) == len(checks) - 1:
                return None
            if len(errors) < len(checks) - 1:
                return "expected a value of one form, got one of several", path
            return choose_error(errors)

        yield check

    def _select_by_constant(self, schemas: Sequence[Schema], base: str) -> Check | None:
        """Return a check that selects the branch by a property with another constant in each; else None."""
        constants = [dict(self._constants(schema, base)) for schema in schemas]
        for name in constants[0]:
            branches = {
                found[name]: schema for found, schema in zip(constants, schemas, strict=True) if name in found
            }
            if len(branches) == len(schemas) > 1:
                return self._check_branch(name, branches, base)
        return None

    def _constants(self, schema: Schema, base: str) -> Iterator[tuple[str, str]]:
        for part, _ in self.parts(schema, base):
            for name, rule in part.get("properties", {}).items():
                if "const" in rule:
                    yield name, rule["const"]

    def _check_branch(self, name: str, branches: Mapping[str, Schema], base: str) -> Check:
        checks = {constant: self.compile(schema, base) for constant, schema in branches.items()}
        known = ", ".join(checks)

        def check(value: Any, path: str) -> SchemaError | None:
            if not isinstance(value, dict):
                return "expected an object", path
            if name not in value:
                return f"expected a field {name}", path
            constant = value[name]
            branch = checks.get(constant) if isinstance(constant, str) else None
            if branch is None:
                return f"unknown {name} {quote(constant)}: expected one of {known}", f"{path}.{name}"
            return branch(value, path)

        return check

    def condition(self, schema: Schema, whole: Schema, base: str) -> Iterator[Check]:
        check_if = self.compile(schema, base)
        check_then = self.compile(whole["then"], base)

        def check(value: Any, path: str) -> SchemaError | None:
            return check_then(value, path) if check_if(value, path) is None else None

        yield check

    def consequence(self, _: Schema, __: Schema, ___: str) -> Iterator[Check]:
        """Compile nothing: `condition` has compiled `then`."""
        yield from ()


def refuse_other_fields(known: frozenset[str]) -> Check:
    def check(value: Any, path: str) -> SchemaError | None:
        if isinstance(value, dict):
            for name in value:
                if name not in known:
                    return f"expected no field {quote(name)}", path
        return None

    return check


def choose_error(errors: Sequence[SchemaError]) -> SchemaError:
    """Return the error of the branch that fitted best: its error lies deepest. Join errors at one path."""
    paths = {path for _, path in errors}
    if len(paths) == 1 and len(set(errors)) > 1:
        sentences = dict.fromkeys(sentence.removeprefix("expected ") for sentence, _ in errors)
        return f"expected {', or '.join(sentences)}", paths.pop()
    return max(errors, key=lambda error: len(error[1]))


KEYWORDS: Mapping[str, Callable[[SchemaCompiler, Any, Schema, str], Iterator[Check]]] = {
    "$ref": SchemaCompiler.reference,
    "type": SchemaCompiler.type,
    "const": SchemaCompiler.const,
    "enum": SchemaCompiler.enum,
    "pattern": SchemaCompiler.pattern,
    "format": SchemaCompiler.format,
    "minimum": SchemaCompiler.minimum,
    "minItems": SchemaCompiler.min_items,
    "items": SchemaCompiler.items,
    "required": SchemaCompiler.required,
    "properties": SchemaCompiler.properties,
    "additionalProperties": SchemaCompiler.additional_properties,
    "unevaluatedProperties": SchemaCompiler.unevaluated_properties,
    "allOf": SchemaCompiler.all_of,
    "anyOf": SchemaCompiler.any_of,
    "oneOf": SchemaCompiler.one_of,
    "if": SchemaCompiler.condition,
    "then": SchemaCompiler.consequence,
}
