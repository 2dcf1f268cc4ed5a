import inspect
from enum import StrEnum

import pytest

from capsules import errors
from capsules.errors import (
    ArtefactError,
    ArtefactFault,
    CapsuleError,
    DataFault,
    FileFault,
    OptionError,
)

FAULTS = [
    member
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, StrEnum) and found is not StrEnum
    for member in found
]
TREE = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, CapsuleError) and found is not CapsuleError
]


def test_codes_are_distinct_and_in_snake_case() -> None:
    codes = [fault.value for fault in FAULTS if not isinstance(fault, FileFault)]
    assert len(codes) > 20
    assert len(set(codes)) == len(codes)
    # What is wrong with a file on disk has one name, whatever the file is for.
    assert set(FileFault) < set(DataFault)
    assert all(code.replace("_", "").isalpha() and code == code.lower() for code in codes)


@pytest.mark.parametrize("error", TREE)
def test_the_tree_is_drawn_as_it_is(error: type[CapsuleError]) -> None:
    assert error.__base__ is CapsuleError
    assert errors.__doc__ is not None
    assert f"── {error.__name__} " in errors.__doc__


def test_an_error_carries_code_message_and_field() -> None:
    error = ArtefactError("No.", code=ArtefactFault.TRUNCATED, field="capsule")
    assert (error.code, error.message, error.field) == ("artefact_truncated", "No.", "capsule")
    assert type(error.code) is str
    assert str(error) == "No."
    assert OptionError("No.", field="device").code == "invalid_option"


def test_an_error_can_be_caught_as_any_of_the_library() -> None:
    with pytest.raises(CapsuleError):
        raise OptionError("No.", field="device")
