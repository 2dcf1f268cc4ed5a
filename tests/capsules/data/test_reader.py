import gzip
import io
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile

import pytest
from hypothesis import given, strategies as st

from capsules.core import Example
from capsules.data.base import Dataset, RowProblem
from capsules.data.collector import BadRowsError
from capsules.data.limits import Limits
from capsules.data.reader import DataFormat, format_of, load, read
from capsules.errors import DataError, OptionError
from capsules.labels import is_blank
from tests.support.rows import as_csv, as_jsonl

ROWS = [{"text": f"row {i}", "label": "odd" if i % 2 else "even"} for i in range(40)]
PAIRS = [
    {"premise": 'say "hi",\r\nthere', "hypothesis": "h\té", "label": "no"},
    {"premise": " padded ", "hypothesis": "مرحبا 😀", "label": "yes"},
]
SHARED = Path(__file__).parents[4] / "shared" / "data"


def load_bytes(folder: Path, name: str, content: bytes, **options) -> Dataset:
    path = folder / name
    path.write_bytes(content)
    options.setdefault("fields", ["text"])
    return load(path, **options)


def test_the_same_rows_are_the_same_data_set_in_every_format(tmp_path):
    contents = {
        "a.jsonl": as_jsonl(PAIRS),
        "a.json": as_jsonl(PAIRS),
        "a.NDJSON": as_jsonl(PAIRS),
        "a.csv": as_csv(PAIRS),
        "a.tsv": as_csv(PAIRS, delimiter="\t"),
        "bom.csv": b"\xef\xbb\xbf" + as_csv(PAIRS),
        "bom.jsonl": b"\xef\xbb\xbf" + as_jsonl(PAIRS),
        "a.jsonl.gz": gzip.compress(as_jsonl(PAIRS)),
        "a.csv.gz": gzip.compress(as_csv(PAIRS)),
        "zipped-without-suffix.jsonl": gzip.compress(as_jsonl(PAIRS)),
        "plain-with-suffix.csv.gz": as_csv(PAIRS),
    }
    for name, content in contents.items():
        dataset = load_bytes(tmp_path, name, content, fields=["hypothesis", "premise"])
        assert dataset.examples == (
            Example({"hypothesis": "h\té", "premise": 'say "hi",\r\nthere'}, "no"),
            Example({"hypothesis": "مرحبا 😀", "premise": " padded "}, "yes"),
        ), name
        assert dataset.labels == ("no", "yes")
        assert dataset.problems == ()
        # From `sha256sum` over the two canonical lines, typed by hand.
        assert dataset.digest == (
            "4dce9d889dc513574d3a78539193d5ef23167c3bdf9ebb2ee85b05c4e29a33a4"
        ), name


def test_order_and_given_label_order_are_kept(tmp_path):
    content = as_jsonl(ROWS)
    dataset = load_bytes(tmp_path, "a.jsonl", content, labels=["odd", "unused", "even"])
    assert [row.inputs["text"] for row in dataset] == [f"row {i}" for i in range(40)]
    assert dataset.counts() == {"odd": 20, "unused": 0, "even": 20}


def test_bad_jsonl_rows_are_reported_by_line(tmp_path):
    bad = [
        b'{"text": "cut',
        b"[]",
        b'{"label": "even"}',
        b'{"text": "", "label": "even"}',
        b'{"text": 5, "label": "even"}',
        b'{"text": "a"}',
        b'{"text": "a", "label": "prime"}',
        b'{"text": "caf\xe9", "label": "even"}',
        b'{"text": "\\ud800", "label": "even"}',
        b"",
    ]
    content = as_jsonl(ROWS[:20]) + b"\n".join(bad) + b"\n" + as_jsonl(ROWS[20:])
    dataset = load_bytes(tmp_path, "a.jsonl", content, labels=["even", "odd"])
    assert len(dataset) == 40
    assert dataset.bad_rows == 10
    assert [
        (problem.line, problem.reason.split(" at column")[0]) for problem in dataset.problems
    ] == [
        (21, "malformed JSON"),
        (22, "the row is an array, not an object"),
        (23, "field 'text' is missing"),
        (24, "field 'text' is empty"),
        (25, "field 'text' is a number, not a string"),
        (26, "no label: field 'label' is missing"),
        (27, "label 'prime' is not one of the 2 labels given"),
        (28, "invalid UTF-8"),
        (29, "malformed JSON"),
        (30, "blank line"),
    ]
    assert dataset.digest == load_bytes(tmp_path, "b.jsonl", as_jsonl(ROWS)).digest


def test_bad_csv_rows_are_reported_by_physical_line(tmp_path):
    bad = [
        b'"two\nlines",prime',
        b",even",
        b"text,",
        b"caf\xe9,even",
        b"a,b,even",
        b"",
        b'"a"b,even',
    ]
    content = as_csv(ROWS[:20]) + b"\r\n".join(bad) + b"\r\nlast,odd\r\n"
    dataset = load_bytes(tmp_path, "a.csv", content, labels=["even", "odd"], limits=Limits(7))
    assert len(dataset) == 21
    assert [(problem.line, problem.reason) for problem in dataset.problems] == [
        (22, "label 'prime' is not one of the 2 labels given"),
        (24, "field 'text' is empty"),
        (25, "no label: field 'label' is empty"),
        (26, "field 'text' is not valid UTF-8"),
        (27, "3 columns where the header has 2"),
        (28, "blank line"),
        (29, "malformed CSV: ',' expected after '\"'"),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", as_jsonl(ROWS) + b"\n \n\n"), ("a.csv", as_csv(ROWS) + b"\r\n,\r\n")],
)
def test_blank_lines_at_the_end_are_no_fault(tmp_path, name, content):
    dataset = load_bytes(tmp_path, name, content)
    assert (len(dataset), dataset.bad_rows, dataset.problems) == (40, 0, ())


def test_a_run_of_blank_lines_is_one_problem_but_counts_in_full(tmp_path):
    content = as_jsonl(ROWS[:1]) + b"\n\n\n" + as_jsonl(ROWS[1:])
    dataset = load_bytes(tmp_path, "a.jsonl", content)
    assert dataset.problems == (RowProblem(2, "blank line", lines=3),)
    assert dataset.bad_rows == 3


def test_too_many_bad_rows_stop_with_the_first_twenty(tmp_path):
    content = as_jsonl([*ROWS, *[{"text": "t"}] * 25])
    with pytest.raises(BadRowsError) as caught:
        load_bytes(tmp_path, "a.jsonl", content)
    assert [problem.line for problem in caught.value.problems] == list(range(41, 61))
    message = caught.value.message
    assert (caught.value.code, caught.value.field) == ("too_many_bad_rows", "max_bad_rows")
    assert "25 of the 65 rows read cannot be used, and max_bad_rows allows 16" in message
    assert message.count("no label: field 'label' is missing") == 20
    assert "\n  line 41: no label" in message
    assert message.endswith("line 60: no label: field 'label' is missing")


def test_a_count_of_bad_rows_stops_without_reading_on(tmp_path):
    content = as_jsonl([{"text": "t"}] * 3 + ROWS)
    with pytest.raises(DataError, match="3 of the 3 rows read") as caught:
        load_bytes(tmp_path, "a.jsonl", content, limits=Limits(max_bad_rows=2, max_reported=1))
    assert caught.value.message.count("\n  line ") == 1


def test_a_fraction_of_bad_rows_is_of_the_whole_file_wherever_they_are(tmp_path):
    bad = [{"text": "t"}] * 10
    for rows in (bad + ROWS, ROWS + bad):
        dataset = load_bytes(tmp_path, "a.jsonl", as_jsonl(rows), limits=Limits(max_bad_rows=0.2))
        assert dataset.bad_rows == 10
        with pytest.raises(DataError, match="max_bad_rows allows 9"):
            load_bytes(tmp_path, "a.jsonl", as_jsonl(rows), limits=Limits(max_bad_rows=0.19))


def test_more_problems_than_reported_are_still_counted(tmp_path):
    content = as_jsonl(ROWS + [{"text": "t"}] * 5)
    dataset = load_bytes(tmp_path, "a.jsonl", content, limits=Limits(max_reported=2))
    assert [problem.line for problem in dataset.problems] == [41, 42]
    assert dataset.bad_rows == 5


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv"])
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_refused(tmp_path, name, content):
    with pytest.raises(DataError, match=name) as caught:
        load_bytes(tmp_path, name, content)
    assert caught.value.code == "empty_dataset"


def test_a_header_without_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match="no usable row") as caught:
        load_bytes(tmp_path, "a.csv", b"text,label\n")
    assert caught.value.code == "empty_dataset"


def test_only_bad_rows_are_refused_even_if_all_may_be_bad(tmp_path):
    limits = Limits(max_bad_rows=1.0)
    with pytest.raises(DataError, match="no usable row"):
        load_bytes(tmp_path, "a.jsonl", b"{}\n", limits=limits)


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(DataError, match="no column 'premise'") as caught:
        load_bytes(tmp_path, "a.csv", as_csv(ROWS), fields=["premise"])
    assert (caught.value.code, caught.value.field) == ("missing_column", "premise")


def test_a_gzip_bomb_stops_at_the_limit(tmp_path):
    bomb = gzip.compress(b'{"text": "a", "label": "x"}\n' * 400_000)
    assert len(bomb) < 100_000
    with pytest.raises(DataError, match="more than 1,000,000 bytes once unpacked") as caught:
        load_bytes(tmp_path, "a.jsonl.gz", bomb, limits=Limits(max_bytes=1_000_000))
    assert caught.value.code == "file_too_large"


def test_the_row_limit_counts_good_and_bad(tmp_path):
    content = as_jsonl([*ROWS, {"text": "t"}])
    assert len(load_bytes(tmp_path, "a.jsonl", content, limits=Limits(max_rows=41))) == 40
    with pytest.raises(DataError, match="more than 40 rows") as caught:
        load_bytes(tmp_path, "a.jsonl", content, limits=Limits(max_rows=40))
    assert (caught.value.code, caught.value.field) == ("too_many_rows", "max_rows")


def test_files_that_cannot_be_opened_are_named(tmp_path):
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    for path in (tmp_path / "absent.csv", folder):
        with pytest.raises(DataError, match=path.name) as caught:
            load(path, fields=["text"])
        assert caught.value.code == "unreadable_file"


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.gz", "rows.csv.zip", ".csv"])
def test_unknown_suffixes_are_refused_with_the_known_ones(name):
    with pytest.raises(DataError, match=r"\.jsonl, \.ndjson, \.json, \.csv, \.tsv") as caught:
        format_of(name)
    assert caught.value.code == "unsupported_format"


def test_options_are_checked_before_the_rows(tmp_path):
    with pytest.raises(OptionError) as caught:
        load_bytes(tmp_path, "a.jsonl", as_jsonl(ROWS), label_field="text")
    assert caught.value.field == "label_field"


def test_other_label_names_and_integer_labels(tmp_path):
    rows = [{"text": "a", "class": 1}, {"text": "b", "class": 0}, {"text": "c", "class": True}]
    dataset = load_bytes(tmp_path, "a.jsonl", as_jsonl(rows), label_field="class")
    assert [row.label for row in dataset] == ["1", "0", "true"]


@pytest.mark.parametrize("open_stream", [io.BytesIO, partial(SpooledTemporaryFile, max_size=64)])
def test_a_stream_is_read_from_memory_or_a_spooled_upload_and_left_open(open_stream):
    with open_stream() as stream:
        stream.write(gzip.compress(as_csv(ROWS)))
        stream.seek(0)
        dataset = read(stream, data_format=DataFormat.CSV, source="upload", fields=["text"])
        assert len(dataset) == 40
        assert not stream.closed


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda text: not text.isspace()
)
LABEL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: text.strip() == text and not is_blank(text)
)


@given(
    rows=st.lists(
        st.fixed_dictionaries({"text": TEXT, "other": TEXT, "label": LABEL}), min_size=1, max_size=8
    ),
    zipped=st.booleans(),
)
def test_any_unicode_survives_every_format(rows, zipped):
    contents = {
        DataFormat.JSONL: as_jsonl(rows),
        DataFormat.CSV: as_csv(rows),
        DataFormat.TSV: as_csv(rows, delimiter="\t"),
    }
    expected = tuple(
        Example({"text": row["text"], "other": row["other"]}, row["label"]) for row in rows
    )
    digests = set()
    for data_format, content in contents.items():
        stream = io.BytesIO(gzip.compress(content) if zipped else content)
        dataset = read(stream, data_format=data_format, source="x", fields=["text", "other"])
        assert dataset.examples == expected
        assert dataset.bad_rows == 0
        digests.add(dataset.digest)
    assert len(digests) == 1


@given(content=st.binary(max_size=300), data_format=st.sampled_from(DataFormat))
def test_any_bytes_give_a_data_set_or_a_data_error(content, data_format):
    headers = {DataFormat.CSV: b"text,label\n", DataFormat.TSV: b"text\tlabel\n"}
    stream = io.BytesIO(headers.get(data_format, b"") + content)
    with suppress(DataError):
        dataset = read(stream, data_format=data_format, source="x", fields=["text"])
        assert len(dataset) >= 1


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the research data is not at {SHARED}")
@pytest.mark.parametrize(
    ("name", "sizes", "labels"),
    [("trec", (4_922, 530, 500), 6), ("clinc150", (15_100, 3_100, 5_500), 151)],
)
def test_research_data_has_its_documented_sizes(name, sizes, labels):
    splits = ("train", "validation", "test")
    datasets = [load(SHARED / name / f"{part}.jsonl.gz", fields=["text"]) for part in splits]
    assert tuple(len(dataset) for dataset in datasets) == sizes
    assert [dataset.bad_rows for dataset in datasets] == [0, 0, 0]
    assert {len(dataset.labels) for dataset in datasets} == {labels}


@pytest.mark.parametrize(
    ("field", "label_field", "lacking"),
    [("nope", "label", "field 'nope' is missing"), ("text", "nope", "no label: field 'nope'")],
)
def test_a_name_that_no_row_has_is_told_once(
    tmp_path: Path, field: str, label_field: str, lacking: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n' * 30)
    with pytest.raises(DataError) as caught:
        load(path, fields=[field], label_field=label_field)
    message = caught.value.message
    assert "none of the 30 rows can be used" in message
    assert lacking in message
    assert message.count("nope") == 1
    assert "`template` and `label_field`" in message
