from pathlib import Path

import pytest

from service.settings import Settings, SettingsError, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"CAPSULE_{name.upper()}", raising=False)


def test_defaults_are_those_documented() -> None:
    settings = load_settings()
    assert settings.host == "127.0.0.1"
    assert settings.port == 8000
    assert settings.data_dir == Path("data")
    assert settings.backbone == "embedded"
    assert (settings.device, settings.dtype) == ("auto", "auto")
    assert (settings.executor, settings.quantization) == ("auto", "none")
    assert (settings.compile, settings.graph_dir) == (False, None)
    assert settings.threads is None
    assert settings.max_body_bytes == 4 * 1024 * 1024
    assert settings.max_artefact_bytes == 16 * 1024 * 1024
    assert settings.max_texts == 1024
    assert settings.max_characters == 100_000
    assert settings.max_reply_bytes == 32 * 1024 * 1024
    assert settings.queue_rows == 4096
    assert settings.timeout_ms == 30_000
    assert settings.load_zoo is True


def test_a_flag_wins_over_a_variable_which_wins_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAPSULE_PORT", "9001")
    monkeypatch.setenv("CAPSULE_HOST", "0.0.0.0")
    settings = load_settings(port=9002, host=None)
    assert (settings.host, settings.port) == ("0.0.0.0", 9002)


def test_sizes_may_have_units_and_levels_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_MAX_BODY_BYTES", "2MiB")
    monkeypatch.setenv("CAPSULE_LOG_LEVEL", "debug")
    settings = load_settings()
    assert settings.max_body_bytes == 2 * 1024 * 1024
    assert settings.log_level == "DEBUG"


def test_an_empty_variable_is_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_THREADS", "")
    assert load_settings().threads is None


def test_all_bad_values_are_reported_together_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_PORT", "eighty")
    monkeypatch.setenv("CAPSULE_DEVICE", "tpu")
    with pytest.raises(SettingsError) as caught:
        load_settings(max_texts=0, colour="red")
    text = str(caught.value)
    assert len(caught.value.problems) == 4
    for name in ("CAPSULE_PORT", "CAPSULE_DEVICE", "--max-texts", "--colour"):
        assert name in text
    assert "'eighty'" in text


@pytest.mark.parametrize("device", ["tpu", "cuda:", "CPU", "cuda:x", "cpu ", "cuda:0\n", "cpux"])
def test_a_device_is_one_of_those_there_are(device: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(device=device)
    assert caught.value.problems == (f"--device is {device!r}: choose auto, cpu, cuda or cuda:N.",)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_devices(device: str) -> None:
    assert load_settings(device=device).device == device


@pytest.mark.parametrize(
    ("flags", "name"),
    [({"executor": "onnx"}, "--executor"), ({"quantization": "int4"}, "--quantization")],
)
def test_executors_and_number_formats_are_those_there_are(flags: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    (problem,) = caught.value.problems
    (value,) = flags.values()
    assert problem.startswith(f"{name} is {value!r}: Input should be ")


@pytest.mark.parametrize(
    ("flags", "variables", "told"),
    [
        (
            {"quantization": "int8", "executor": "torch"},
            {},
            "--quantization is int8, which torch does not do: set --executor to onnxruntime or "
            "auto, and CAPSULE_COMPILE to false.",
        ),
        (
            {"quantization": "int8"},
            {"CAPSULE_COMPILE": "true"},
            "--quantization is int8, which torch does not do: set CAPSULE_EXECUTOR to onnxruntime "
            "or auto, and CAPSULE_COMPILE to false.",
        ),
        (
            {"executor": "onnxruntime"},
            {"CAPSULE_COMPILE": "true"},
            "CAPSULE_COMPILE is true, which is for torch, but --executor is onnxruntime: set "
            "--executor to auto or torch, or CAPSULE_COMPILE to false.",
        ),
    ],
)
def test_what_torch_does_and_does_not_do_is_not_mixed_up(
    flags: dict[str, str],
    variables: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    assert caught.value.problems == (told,)


@pytest.mark.parametrize(
    "flags",
    [
        {"quantization": "int8", "executor": "onnxruntime"},
        {"quantization": "int8"},
        {"compile": True, "executor": "torch"},
        {"compile": True},
    ],
)
def test_what_goes_together_is_taken(flags: dict[str, object]) -> None:
    settings = load_settings(**flags)
    assert {name: getattr(settings, name) for name in flags} == flags


def test_a_value_is_told_by_the_name_that_it_came_under(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_PORT", "1")
    monkeypatch.setenv("CAPSULE_BANK_SLOTS", "8")
    with pytest.raises(SettingsError) as caught:
        load_settings(port="99999", max_texts=None)
    (problem,) = caught.value.problems
    assert problem.startswith("--port is '99999': ")
    with pytest.raises(SettingsError) as caught:
        load_settings(max_batch_rows=9)
    (problem,) = caught.value.problems
    assert problem.startswith("CAPSULE_BANK_SLOTS is 8, less than twice --max-batch-rows, 9: ")


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({"queue_rows": 10, "max_texts": 11}, ("--queue-rows", "--max-texts")),
        ({"bank_slots": 8, "max_batch_rows": 9}, ("--bank-slots", "--max-batch-rows")),
    ],
)
def test_limits_that_contradict_each_other_are_refused(
    flags: dict[str, int], names: tuple[str, str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    assert all(name in str(caught.value) for name in names)


CREDENTIALS = f"sha256:{'0f' * 32}"


def test_callers_and_their_weights_are_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().caller_weights == {}
    told = f'{{"10.1.2.3": 4, "0::1": 0.5, "{CREDENTIALS.upper()}": 1e2}}'
    monkeypatch.setenv("CAPSULE_CALLER_WEIGHTS", told)
    expected = {"10.1.2.3": 4.0, "::1": 0.5, CREDENTIALS: 100.0}
    assert load_settings().caller_weights == expected
    assert load_settings(caller_weights={"::1": 3}).caller_weights == {"::1": 3.0}


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ("10.1.2.3=4", "it is not JSON (Extra data at character 5)"),
        ("{'10.1.2.3': 4}", "it is not JSON (Expecting property name enclosed in double quotes"),
        ("[4]", 'give a JSON object of callers and weights, such as {"10.1.2.3": 4}'),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"::1": 1, "Bearer swordfish": 2}', "its caller number 2 is neither an address nor"),
        ('{"::1": "swordfish"}', "the weight of ::1 is no number"),
        ('{"::1": true}', "the weight of ::1 is no number"),
        ('{"::1": {"swordfish": 1}}', "the weight of ::1 is no number"),
        ('{"::1": 0}', "the weight of ::1 is not between 0.000001 and 1,000,000"),
        ('{"::1": -1}', "the weight of ::1 is not between"),
        ('{"::1": NaN}', "the weight of ::1 is not between"),
        ('{"::1": Infinity}', "the weight of ::1 is not between"),
        (f'{{"::1": 1{"0" * 400}}}', "the weight of ::1 is not between"),
        ('{"::1": 1, "::1": 2}', "it names a caller twice"),
        ('{"::1": 1, "0::1": 2}', "it names a caller twice"),
    ],
)
def test_weights_that_cannot_be_used_are_told_without_what_may_be_secret(
    told: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_CALLER_WEIGHTS", told)
    with pytest.raises(SettingsError) as caught:
        load_settings(port="eighty")
    number, weights = sorted(caught.value.problems)
    assert number.startswith("--port is 'eighty'")
    assert weights.startswith(f"CAPSULE_CALLER_WEIGHTS cannot be used: {problem}")
    assert "swordfish" not in weights


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]


def test_misspelt_variables_are_found() -> None:
    names = ("CAPSULE_PROT", "CAPSULE_PORT", "CAPSULE_URL", "PATH")
    found = unknown_variables(dict.fromkeys(names, "1"))
    assert found == ["CAPSULE_PROT"]


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())
