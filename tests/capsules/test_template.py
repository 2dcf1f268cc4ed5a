import pytest
from hypothesis import given, strategies as st

from capsules.errors import ArtefactError, ArtefactFault, InputError, InputFault
from capsules.template import MAX_TEMPLATE_CHARACTERS, MAX_USES, Template

PAIR = Template("premise: {premise} hypothesis: {hypothesis}")


@pytest.mark.parametrize(
    ("source", "inputs", "text"),
    [
        ("{text}", {"text": "a b"}, "a b"),
        ("{a}{b}", {"a": "x", "b": "y"}, "xy"),
        ("{a} {a}", {"a": "x"}, "x x"),
        ("q: {a}, in {b}!", {"b": "y", "a": "x"}, "q: x, in y!"),
        ("{{{text}}}", {"text": "x"}, "{x}"),
        ("{text} {{braces}}", {"text": "x"}, "x {braces}"),
        ("{question_1} é {frage}", {"question_1": "x", "frage": "\N{SNOWMAN}"}, "x é \N{SNOWMAN}"),
        ("{größe}", {"größe": "x"}, "x"),
        ("{a} {b}", {"a": "x", "b": ""}, "x "),
    ],
)
def test_fields_are_filled_in(source: str, inputs: dict[str, str], text: str) -> None:
    template = Template(source)
    assert template.render(inputs) == text
    assert set(template.fields) == inputs.keys()


def test_fields_come_in_the_order_of_first_use() -> None:
    assert Template("{b} {a} {b} {c}").fields == ("b", "a", "c")


@pytest.mark.parametrize(
    "value", ["{other}", "{text}", "{", "}}", "{text.__class__}", "{0}", "%s", "\0", "{{}}"]
)
def test_an_input_is_never_taken_for_a_template(value: str) -> None:
    assert Template("<{text}>").render({"text": value}) == f"<{value}>"


@given(st.text(), st.text(min_size=1).filter(str.strip))
def test_any_literal_and_any_input_are_kept(literal: str, value: str) -> None:
    escaped = literal.replace("{", "{{").replace("}", "}}")
    assert Template(escaped + "{text}" + escaped).render({"text": value}) == (
        literal + value + literal
    )


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no field", "names no field"),
        ("{{text}}", "names no field"),
        ("{}", "{}"),
        ("{0}", "{0}"),
        ("{text.upper}", "{text.upper}"),
        ("{text[0]}", "{text[0]}"),
        ("{text!r}", "{text!r}"),
        ("{text!s}", "{text!s}"),
        ("{text:>9}", "{text:>9}"),
        ("{text:}", "the field {text:},"),
        ("{{ {text} {other:}", "the field {other:},"),
        ("{text:{width}}", "{text:{width}"),
        ("{a b}", "{a b}"),
        ("{ text }", "{ text }"),
        ("{text", "not a valid format string"),
        ("text}", "not a valid format string"),
        ("{text!}", "not a valid format string"),
        ("{text}" + "x" * MAX_TEMPLATE_CHARACTERS, "longer than 4096"),
        ("{text}" * (MAX_USES + 1), "the field {text} 9 times, and may have it 8"),
        ("{other}" + "{text} " * 500, "the field {text} 500 times"),
    ],
)
def test_a_template_of_anything_but_plain_fields_is_refused(source: str, says: str) -> None:
    with pytest.raises(ArtefactError) as refused:
        Template(source).render({"text": "x"})
    assert (refused.value.code, refused.value.field) == (ArtefactFault.INVALID_TEMPLATE, "template")
    assert says in refused.value.message
    assert "named fields" in refused.value.message


def test_a_field_may_come_a_few_times_and_fields_may_be_many() -> None:
    assert Template("{text}" * MAX_USES).render({"text": "ab"}) == "ab" * MAX_USES
    columns = {f"column_{number}": str(number) for number in range(200)}
    template = Template("".join(f"{{{name}}}" for name in columns))
    assert template.render(columns) == "".join(map(str, range(200)))


@pytest.mark.parametrize(
    ("source", "inputs", "length"),
    [
        ("{text}", {"text": "abc"}, 3),
        ("{a} {a}{{b}}{b}", {"a": "xy", "b": "é" * 1000}, 1008),
        ("<{a}>", {}, 2),
        ("<{a}>", {"a": "x", "other": "y" * 99}, 3),
    ],
)
def test_the_length_is_told_without_the_text(
    source: str, inputs: dict[str, str], length: int
) -> None:
    assert Template(source).length(inputs) == length


@given(st.text(st.sampled_from("{}ab é"), max_size=20), st.text(), st.text())
def test_the_length_is_that_of_the_text(source: str, one: str, other: str) -> None:
    template = Template(source)
    try:
        template.check()
    except ArtefactError:
        return
    inputs = dict(zip(template.fields, [one + "x", other, "ccc", ""], strict=False))
    inputs = {name: inputs.get(name, "more") for name in template.fields}
    assert template.length(inputs) == len(template.render(inputs))


@given(st.text(st.sampled_from("{}[].!:0a \n\u00b2"), max_size=12))
def test_any_template_renders_or_is_refused(source: str) -> None:
    template = Template(source)
    try:
        fields = template.fields
    except ArtefactError:
        return
    template.render(dict.fromkeys(fields, "x"))


def test_an_input_that_is_missing_is_named_with_those_that_are_taken() -> None:
    with pytest.raises(InputError, match="takes: premise, hypothesis") as refused:
        PAIR.render({"premise": "x"})
    assert (refused.value.code, refused.value.field) == (InputFault.MISSING_INPUT, "hypothesis")


def test_an_input_that_is_not_a_field_is_named() -> None:
    with pytest.raises(InputError, match="takes: premise, hypothesis") as refused:
        PAIR.render({"premise": "x", "hypothesis": "y", "text": "z"})
    assert (refused.value.code, refused.value.field) == (InputFault.UNEXPECTED_INPUT, "text")


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u3000\u2003"])
def test_inputs_that_are_all_blank_are_refused(blank: str) -> None:
    with pytest.raises(InputError) as refused:
        PAIR.render({"premise": blank, "hypothesis": ""})
    assert (refused.value.code, refused.value.field) == (InputFault.EMPTY_TEXT, "premise")
    assert PAIR.render({"premise": blank, "hypothesis": "x"}).endswith(" x")
