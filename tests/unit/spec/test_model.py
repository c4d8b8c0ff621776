"""Files as models: each is read, or has faults; what is around a fault is read all the same."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.spec.as_read import KeptSource
from tidegate.spec.document import Document
from tidegate.spec.json_schema import build_schemas
from tidegate.spec.model import BadValue, Model, build_model
from tidegate.spec.models import (
    AirflowSpec,
    AlertsSpec,
    ExpireSpec,
    FilesSource,
    MaintenanceSpec,
    PipelineSpec,
    ProjectKafkaSpec,
    ProjectSpec,
    UiSpec,
)
from tidegate.spec.yaml_file import parse_document

ROOT = Path(__file__).parents[3]
WITH_EVERY_KIND: dict[str, Any] = {
    "version": 1,
    "name": "every_kind",
    "description": "one of each",
    "tags": ["a", "b"],
    "schedule": None,
    "sources": {
        "files": {
            "type": "files",
            "path": "in",
            "format": "csv",
            "schema": "id STRING, t TIMESTAMP",
            "event_time": "t",
            "watermark": "2 hours",
            "settle": "0 seconds",
            "list_all_every": "1 day",
            "notifications": {"topic": "events"},
            "follow_links": ["a"],
            "options": {"header": True, "sep": ";", "maxColumns": 7, "samplingRatio": 0.5},
        },
        "kafka": {
            "type": "kafka",
            "assign": {"t": [0, 1]},
            "format": "json",
            "schema": "id STRING",
            "metadata": True,
            "starting_offsets": {"t": {"0": 5, "1": 7}},
        },
        "rate": {"type": "rate", "options": {"rowsPerSecond": 1}},
    },
    "close_windows": {"when": "10 minutes"},
    "table": {"path": "data/t", "partition_by": ["day"], "keys": ["id"], "readers": "delta"},
    "quality": {"on_critical": "hold", "max_quarantine_share": 1},
    "sinks": [{"type": "kafka", "topic": "t"}, {"type": "console"}],
    "maintenance": {"keep_versions": 0, "compact_below": "32 MiB", "expire": {"partitions": "7 days"}},
    "alerts": {"notify": [{"notifier": "a.B", "arguments": {"a": None, "b": ["c"]}}], "quarantine_share": 0.5},
    "spark": {"conf": {"spark.a": 1}},
}
PIPELINES = [WITH_EVERY_KIND, *(yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob("jobs/*/pipeline.yaml")))]
FILES: list[tuple[type[Model], dict[str, Any]]] = [
    *((PipelineSpec, data) for data in PIPELINES),
    (ProjectSpec, yaml.safe_load((ROOT / "tidegate.yaml").read_text())),
    (ProjectSpec, {"version": 1, "kafka": {"options": {"a": "b"}}, "lease": {"expires_after": "20 seconds"}}),
]
VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 7, 10**400, 0.5, 1.5, float("nan"), "", "1", "true", "0", "at_end", "files"]
    ),
    st.sampled_from(
        [
            "kafka",
            "json",
            "7 days",
            "1.5 MiB",
            "9" * 400 + " MiB",
            "exact",
            "Name",
            "abc\n",
            [],
            ["a"],
            [1],
            {},
            {"a": 1},
        ]
    ),
    st.sampled_from([{"type": "console"}, {"type": "nothing"}, {"when": "1 minute"}, {"when": 1}]),
)


def _places(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [here, *(place for key, one in inner for place in _places(one, (*here, key)))]


@st.composite
def _edited(draw: st.DrawFn) -> tuple[type[Model], dict[str, Any]]:
    """A file with one to three values that are others, gone, or new."""
    model, data = draw(st.sampled_from(FILES))
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(data)))
        holder: Any = data
        for part in place[:-1]:
            holder = holder[part]
        if not place or draw(st.booleans()):
            into = holder[place[-1]] if place else data
            if isinstance(into, dict):
                into[draw(st.sampled_from(["type", "when", "new", "start", "values", "path"]))] = copy.deepcopy(
                    draw(VALUES)
                )
        elif draw(st.booleans()):
            holder[place[-1]] = copy.deepcopy(draw(VALUES))
        else:
            del holder[place[-1]]
    return model, data


@settings(max_examples=examples(4000), deadline=None)
@given(_edited())
def test_a_file_is_read_or_has_faults(edited: tuple[type[Model], dict[str, Any]]) -> None:
    model, data = edited
    document = Document("file.yaml", data=copy.deepcopy(data), lines={(): 1})
    made = build_model(document, model)
    try:
        plain = model.read(data)
    except BadValue:
        assert document.faults
    else:
        assert not document.faults
        assert repr(plain) == repr(made), "repr, for 1 is not 1.0 and not True"
    assert made is None or isinstance(made, model)


@pytest.mark.parametrize(("model", "data"), FILES)
def test_files_without_faults_have_the_keys_that_were_given(model: type[Model], data: dict[str, Any]) -> None:
    assert model.read(data).fields_set == set(data)


def test_other_types_are_converted_and_faults_are_all_found() -> None:
    made = ProjectSpec.read({"airflow": {"slots": "7"}, "ui": {"show_data": "Yes"}, "alerts": {"held": "no"}})
    assert made == ProjectSpec(airflow=AirflowSpec(slots=7), ui=UiSpec(show_data=True), alerts=AlertsSpec(held=False))
    assert [AirflowSpec.read({"slots": slots}).slots for slots in (3.0, " 4 ", "-5")] == [3, 4, -5]
    with pytest.raises(BadValue, match=r"held: 1 is not valid here\n    fix: write true or false"):
        AlertsSpec.read({"held": 1})
    for slots in (True, 3.5, "3.5", "few", None, float("inf")):
        with pytest.raises(BadValue, match=r"slots: .* is not valid here"):
            AirflowSpec.read({"slots": slots})
    with pytest.raises(BadValue, match=r"(?s)path: 1 is not valid here.*format: 'cvs' is not allowed"):
        FilesSource(type="files", path=1, format="cvs")


@pytest.mark.parametrize(("model", "data"), FILES)
def test_numbers_and_truths_may_be_texts(model: type[Model], data: dict[str, Any]) -> None:
    def as_text(value: object) -> object:
        if isinstance(value, dict):
            return {key: one if key in ("options", "conf") else as_text(one) for key, one in value.items()}
        if isinstance(value, list):
            return [as_text(one) for one in value]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return text if isinstance(value, int | float) else value

    written = as_text(data)
    assert model.read(written) == model.read(data)
    schema = "pipeline.schema.json" if model is PipelineSpec else "tidegate.schema.json"
    validator = jsonschema.Draft202012Validator(build_schemas()[schema])
    assert [one.message for one in validator.iter_errors(written)] == []
    for version in (True, "one", "1.5", "2"):
        with pytest.raises(BadValue, match="version"):
            model.read(data | {"version": version})
        assert list(validator.iter_errors(data | {"version": version}))


def test_a_model_is_frozen() -> None:
    spec = PipelineSpec.read(WITH_EVERY_KIND)
    with pytest.raises(AttributeError, match="PipelineSpec is frozen"):
        spec.name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="PipelineSpec is frozen"):
        del spec.name


def test_copies_are_equal() -> None:
    spec = PipelineSpec.read(WITH_EVERY_KIND)
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == copy.copy(spec) == spec
    assert pickle.loads(pickle.dumps(spec)).fields_set == spec.fields_set
    other = spec.replace(name="other")
    assert (other.name, other.fields_set, other == spec) == ("other", spec.fields_set, False)
    source = FilesSource(type="files", path="a", format="json")
    assert KeptSource.construct(**source.field_values()) != source, "another kind of source"


def test_names_of_fields_are_checked() -> None:
    source = FilesSource(type="files", path="a", format="json")
    with pytest.raises(TypeError, match="FilesSource has no field schema_"):
        source.replace(schema_="a INT")
    with pytest.raises(TypeError, match="FilesSource has no field other"):
        FilesSource.construct(other=1)
    with pytest.raises(AttributeError, match="path"):
        _ = FilesSource.construct(type="files").path
    with pytest.raises(AssertionError, match="a field has the name of a method"):
        type("Wrong", (Model,), {"__annotations__": {"read": "str"}}).fields()


def test_defaults_are_not_shared() -> None:
    ProjectSpec().spark.conf["spark.a"] = 1
    FilesSource(type="files", path="a", format="json").options["a"] = 1
    assert ProjectSpec().spark.conf == {} and FilesSource(type="files", path="a", format="json").options == {}
    assert MaintenanceSpec(expire=ExpireSpec()) == MaintenanceSpec() and MaintenanceSpec().fields_set == frozenset()


def test_what_may_be_a_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(ProjectKafkaSpec(options={"sasl.password": "hunter2"}))
    with pytest.raises(BadValue) as caught:
        ProjectKafkaSpec.read({"options": {"sasl.password": ["hunter2"]}})
    assert "hunter2" not in str(caught.value)


def test_figures_beyond_all_bounds_are_faults() -> None:
    digits = "9" * 400
    for keys, fault in (
        ({"maintenance": {"compact_below": f"{digits} MiB"}}, "write less than 8589934592 GiB"),
        ({"maintenance": {"keep_versions": f"{digits} days"}}, "write at most 52000 weeks"),
        ({"quality": {"max_quarantine_share": int(digits)}}, "write a number"),
    ):
        document = parse_document(json.dumps(WITH_EVERY_KIND | keys).encode(), "pipeline.yaml")
        assert build_model(document, PipelineSpec) is not None
        assert [one.fix for one in document.faults] == [fault]


def test_everything_is_in_its_json() -> None:
    spec = PipelineSpec.read(WITH_EVERY_KIND)
    written = {key: WITH_EVERY_KIND[key] for key in ("close_windows", "maintenance", "alerts")}
    seconds = {"watermark": "2 hours", "settle": "0 seconds", "list_all_every": "1 day"}
    files = spec.to_json()["sources"]["files"]
    assert files["watermark"] == 7200 and "fields_set" not in str(files)
    sources = spec.to_json()["sources"] | {"files": files | seconds} | {"kafka": WITH_EVERY_KIND["sources"]["kafka"]}
    sources["rate"] = WITH_EVERY_KIND["sources"]["rate"]
    assert PipelineSpec.read(spec.to_json() | {"sources": sources} | written) == spec
