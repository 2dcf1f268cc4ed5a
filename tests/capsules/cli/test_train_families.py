"""`capsule train` on backbones of every family, with every kind of option."""

from pathlib import Path

import pytest

from capsules.artefact.file import parse
from tests.support.backbones import tiny_family
from tests.support.commands import invoke, invoke_json, refusal
from tests.support.rows import as_jsonl


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [{"text": f"w{n % 2} w{n % 7}", "label": ("even", "odd")[n % 2]} for n in range(24)]
    path.write_bytes(as_jsonl(rows))
    return path


def options(folder: Path, model_type: str) -> list[str | Path]:
    loaded = tiny_family(folder, model_type)
    return [
        "--task",
        "parity",
        "--backbone",
        loaded.info.path,
        "--epochs",
        "1",
        "--batch-size",
        "8",
    ]


@pytest.mark.parametrize("model_type", ["t5", "llama", "deberta-v2"])
@pytest.mark.parametrize(
    ("variant", "layers"), [("prepending", "odd"), ("extraction", "2,3"), ("projection", "all")]
)
def test_a_capsule_of_any_form_is_trained_and_shipped(data, tmp_path, model_type, variant, layers):
    given = options(tmp_path / "backbone", model_type)
    chosen = ["--variant", variant, "--layers", layers, "--length", "2"]
    invoke_json("train", data, *given, *chosen)
    capsule = parse(Path("parity.safetensors").read_bytes())
    manifest = capsule.manifest
    assert (manifest.variant, manifest.length) == (variant, 2)
    assert manifest.layers == ([2, 3] if layers == "2,3" else layers)
    assert len(manifest.golden) > 0
    has_head = "head.weight" in capsule.tensors
    assert has_head == (model_type != "t5")
    assert manifest.verbalizers == (None if has_head else {"even": "even", "odd": "odd"})


def test_words_stand_for_labels(data, tmp_path):
    given = options(tmp_path / "backbone", "t5")
    invoke_json("train", data, *given, "--word", "odd=w8", "--word", "even=w9")
    manifest = parse(Path("parity.safetensors").read_bytes()).manifest
    assert manifest.verbalizers == {"even": "w9", "odd": "w8"}


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--variant", "subtraction"], "--variant 'subtraction'"),
        (["--layers", "middle"], "--layers 'middle'"),
        (["--layers", "3,2"], "ascending order"),
        (["--layers", "1,9"], "1 to 4"),
        (["--word", "odd"], "write LABEL=WORD"),
        (["--word", "odd=w8"], "'even' is missing"),
        (["--word", "odd=w8", "--word", "even=w8"], "different words"),
        (["--variant", "instance-only"], "nothing to learn"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(data, tmp_path, extra, says):
    given = options(tmp_path / "backbone", "t5")
    result = invoke("train", data, *given, *extra)
    assert (result.exit_code != 0, result.stdout) == (True, ""), result.output
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert not Path("parity.safetensors").exists()


def test_words_are_refused_where_labels_have_a_head(data, tmp_path):
    given = options(tmp_path / "backbone", "llama")
    result = invoke("train", data, *given, "--word", "odd=w8", "--word", "even=w9")
    assert "does not answer in words" in refusal(result, 2, "invalid_option")
