"""Check the schemas: `python tools/check_schemas.py [--write]`.

--write generates the inputs' JSON Schemas again, and adds what is new: fingerprints of new schema files, golden files
of new types. It never changes a fingerprint or a golden file that exists: a merged schema is never edited; a new
version is a new file.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse
from jsonschema import Draft7Validator, Draft202012Validator

from golden_examples import check_golden, examples, golden
from runfold.codec import log
from runfold.codec.avro import Schema
from runfold.codec.input_models import MODELS
from runfold.core.errors import UnknownRecord

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
PINS = SCHEMAS / "fingerprints.json"
CARD_FIELDS = {
    "name",
    "owner",
    "written_by",
    "read_by",
    "key",
    "value",
    "cleanup_policy",
    "retention_ms",
    "why",
}
OPTIONAL_CARD_FIELDS = {"minimum_retention_ms"}


def check_inputs(*, write: bool) -> Iterator[str]:
    """The inputs' JSON Schemas are what the models say, and none is left over."""
    folder = SCHEMAS / "inputs"
    expected = {f"{name}.json": _render(_input_schema(name)) for name in MODELS}
    for name, content in expected.items():
        path = folder / name
        if write:
            path.write_text(content, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            yield f"{_name(path)} is not what codec/input_models.py says: run tools/check_schemas.py --write"
    for path in folder.glob("*.json"):
        if path.name not in expected:
            yield f"{_name(path)} belongs to no input: delete it"


def check_pins(*, write: bool) -> Iterator[str]:
    """Every Avro file has the fingerprint with which it was merged."""
    pins: dict[str, str] = json.loads(PINS.read_text(encoding="utf-8")) if PINS.exists() else {}
    found = {_name(path): Schema.load(path).fingerprint for path in _avro_files()}
    for name, fingerprint in found.items():
        if name not in pins and write:
            pins[name] = fingerprint
        elif name not in pins:
            yield f"{name} has no pinned fingerprint: run tools/check_schemas.py --write"
        elif pins[name] != fingerprint:
            yield f"{name} was changed ({pins[name]} is now {fingerprint}): restore it, and add a new version beside it"
    for name in pins.keys() - found.keys():
        yield f"{name} is pinned and gone: records that it wrote could never be read again"
    if write:
        PINS.write_text(_render(dict(sorted(pins.items()))), encoding="utf-8")


def check_compatibility() -> Iterator[str]:
    """The newest version of each type reads what every version wrote; by another implementation than fastavro."""
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # published without annotations
    for versions in log.schemas().values():
        parsed = [(SCHEMAS / "log" / f"{schema.name}.avsc").read_text(encoding="utf-8") for schema in versions]
        for schema, source in zip(versions, parsed, strict=True):
            result = checker.get_compatibility(parse(parsed[-1]), parse(source))
            if result.compatibility is not SchemaCompatibilityType.compatible:
                yield f"{versions[-1].name} cannot read what {schema.name} wrote: {'; '.join(sorted(result.messages))}"


def check_goldens(*, write: bool) -> Iterator[str]:
    """Every schema version has golden bytes, and they say what they always did."""
    folder = SCHEMAS / "golden"
    for record in examples() if write else ():
        path = folder / f"{log.schemas()[log.type_name(type(record))][-1].name}.json"
        if not path.exists():
            path.write_text(_render(golden(record)), encoding="utf-8")
    expected = {f"{path.stem}.json" for path in (SCHEMAS / "log").glob("*.avsc")}
    for path in sorted(folder.glob("*.json")):
        if path.name not in expected:
            yield f"{_name(path)} is an example of no schema: delete it"
            continue
        try:
            check_golden(path)
        except (AssertionError, UnknownRecord) as error:
            yield f"golden bytes of {_name(path)} no longer say what they did: {error}"
    for name in sorted(expected - {path.name for path in folder.glob("*.json")}):
        yield f"schemas/golden/{name} is missing: add an example to tools/golden_examples.py, then --write"


def check_notifications() -> Iterator[str]:
    """The notifications' schemas are schemas, and their examples fit."""
    for path in sorted((SCHEMAS / "notifications").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        for example in schema["examples"]:
            for error in Draft202012Validator(schema).iter_errors(example):
                yield f"an example of {_name(path)} does not fit: {error.message}"


def check_topics() -> Iterator[str]:
    """Every topic has its card, every card says what it must, and AsyncAPI has a channel for each."""
    channels = set(_asyncapi()["channels"])
    cards = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (SCHEMAS / "topics").glob("*.yaml")
    }
    for name in sorted(channels ^ cards.keys()):
        yield f"topic {name}: there must be both schemas/topics/{name}.yaml and a channel in schemas/asyncapi.yaml"
    for name, card in cards.items():
        if card.get("name") != name:
            yield f"schemas/topics/{name}.yaml has the name {card.get('name')!r}"
        for field in sorted(CARD_FIELDS - card.keys()):
            yield f"schemas/topics/{name}.yaml lacks {field!r}"
        for field in sorted(card.keys() - CARD_FIELDS - OPTIONAL_CARD_FIELDS):
            yield f"schemas/topics/{name}.yaml has an unknown field {field!r}"


def check_asyncapi() -> Iterator[str]:
    """The AsyncAPI document is valid, every reference leads somewhere, and every schema is referred to."""
    document = _asyncapi()
    official = json.loads((SCHEMAS / "vendor" / "asyncapi-3.0.0.json").read_text(encoding="utf-8"))
    for error in Draft7Validator(official).iter_errors(document):
        where = "/".join(str(part) for part in error.path)
        yield f"schemas/asyncapi.yaml is not AsyncAPI 3.0.0 at {where}: {error.message[:300]}"
    used = set()
    for reference in _references(document):
        file, _, pointer = reference.partition("#")
        if file:
            used.add((SCHEMAS / file).resolve())
        elif not _resolves(document, pointer):
            yield f"schemas/asyncapi.yaml refers to {reference}, which is not there"
    for path in sorted(used):
        if not path.exists():
            yield f"schemas/asyncapi.yaml refers to {path.name}, which does not exist"
    newest = {SCHEMAS / "log" / f"{versions[-1].name}.avsc" for versions in log.schemas().values()}
    for path in sorted({*newest, *SCHEMAS.glob("inputs/*.json"), *SCHEMAS.glob("notifications/*.json")} - used):
        yield f"{_name(path)} is referred to by no message of schemas/asyncapi.yaml"


def _input_schema(name: str) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | MODELS[name].model_json_schema() | {"title": name}


def _avro_files() -> list[Path]:
    return sorted([*(SCHEMAS / "log").glob("*.avsc"), *(SCHEMAS / "snapshot").glob("*.avsc")])


def _asyncapi() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text(encoding="utf-8"))
    return document


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _resolves(document: dict[str, Any], pointer: str) -> bool:
    found: Any = document
    for part in pointer.strip("/").split("/"):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def _render(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _name(path: Path) -> str:
    return path.relative_to(SCHEMAS.parent).as_posix()


def problems(*, write: bool = False) -> list[str]:
    """Run every check; give what is wrong, in words."""
    checks: list[Callable[[], Iterator[str]]] = [
        lambda: check_pins(write=write),
        lambda: check_inputs(write=write),
        lambda: check_goldens(write=write),
        check_compatibility,
        check_notifications,
        check_topics,
        check_asyncapi,
    ]
    return [problem for check in checks for problem in check()]


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="generate what is generated, add what is new")
    found = problems(write=parser.parse_args().write)
    for problem in found:
        print(f"schemas: {problem}", file=sys.stderr)
    if not found:
        print(f"schemas: ok ({len(_avro_files())} Avro schemas, {len(MODELS)} inputs)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
