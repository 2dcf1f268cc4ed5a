import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from service.api.jobs.schemas import (
    EXAMPLES,
    OPTIONS,
    IdempotencyKey,
    JobEnded,
    JobRequest,
    LastEventId,
    TrainingSpec,
)
from service.jobs.records import ENDED
from service.jobs.spec import JobSpec


def test_every_option_is_described() -> None:
    assert list(OPTIONS) == list(JobSpec.model_fields)
    for shape in (TrainingSpec, JobRequest):
        properties = shape.model_json_schema()["properties"]
        assert all(properties[name]["description"] for name in shape.model_fields)


def test_the_examples_are_requests() -> None:
    for example in EXAMPLES.values():
        assert JobRequest.model_validate(example["value"]).task == "tickets"


@pytest.mark.parametrize("shape", [TrainingSpec, JobRequest])
def test_values_are_taken_as_they_are_written(shape: type[BaseModel]) -> None:
    rows = ', "train": [{}]' if shape is JobRequest else ""
    for value in ('"3"', "3.0", "true", "null"):
        with pytest.raises(ValidationError, match="epochs"):
            shape.model_validate_json(f'{{"task": "t", "epochs": {value}{rows}}}')
    layers = shape.model_validate_json(f'{{"task": "t", "layers": [1, 2]{rows}}}')
    assert layers.model_dump()["layers"] == (1, 2)


@pytest.mark.parametrize("text", ["00", "+1", " 1", "1.0", "1_0", "x", "", "-1", "2147483648"])
def test_numbers_are_digits(text: str) -> None:
    number = TypeAdapter(LastEventId)
    assert number.validate_python("0") == 0
    assert number.validate_python("2147483647") == 2**31 - 1
    with pytest.raises(ValidationError):
        number.validate_python(text)


def test_a_key_is_visible_characters() -> None:
    key = TypeAdapter(IdempotencyKey)
    assert key.validate_python("!" * 255) == "!" * 255
    for text in ("", "!" * 256, "a b", "a\n", "é"):
        with pytest.raises(ValidationError):
            key.validate_python(text)


def test_a_stream_ends_where_a_job_does() -> None:
    statuses = JobEnded.model_json_schema()["properties"]["status"]["enum"]
    assert set(statuses) == ENDED | {"deleted"}
