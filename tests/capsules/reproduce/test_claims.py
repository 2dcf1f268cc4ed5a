import pytest

from capsules.reproduce.claims import (
    all_pairs,
    as_lines,
    claims,
    conclusion,
)
from capsules.reproduce.record import Frozen


@pytest.fixture
def rows(make_row):
    """The instance term helps on cb, hurts on copa, is open on rte, has one seed on trec."""
    scores = {
        ("cb", "capsule"): (0.9, 0.91, 0.9),
        ("cb", "task-only"): (0.7, 0.7, 0.7),
        ("copa", "capsule"): (0.5, 0.51, 0.5),
        ("copa", "task-only"): (0.6, 0.6, 0.6),
        ("rte", "capsule"): (0.6, 0.5, 0.7),
        ("rte", "task-only"): (0.6, 0.6, 0.6),
        ("trec", "capsule"): (0.9,),
        ("trec", "task-only"): (0.8,),
        ("cb", "lora"): (0.8, 0.8, 0.8),
    }
    return [
        make_row(task, method, seed, score)
        for (task, method), found in scores.items()
        for seed, score in enumerate(found)
    ]


def by_text(rows, beginning):
    files = rows if isinstance(rows, dict) else {"tiny": rows}
    return next(one for one in claims(files) if one.text.startswith(beginning))


def test_conclusion_names_the_sets_of_each_verdict(rows):
    text = conclusion(all_pairs({"tiny": rows}, "task-only"))
    assert text == (
        "The seeds show that the instance term helps over task-only on cb. They show that it "
        "hurts on copa. They disagree too much, or differ by too little, to tell on rte. There is "
        "only one seed, which decides nothing, on trec. The mean difference over 4 sets is +0.052."
    )


def test_conclusion_says_first_where_nothing_helps(rows):
    pairs = [one for one in all_pairs({"tiny": rows}, "task-only") if one.task == "copa"]
    assert conclusion(pairs) == (
        "On no set do the seeds show that the instance term helps over task-only. They show that "
        "it hurts on copa. The mean difference over 1 set is -0.097."
    )


def test_conclusion_without_runs_says_so():
    assert "No set has been run" in conclusion([])


def test_instance_term_is_judged_set_by_set(rows):
    claim = by_text(rows, "Its instance term helps")
    assert claim.verdict == "support it on cb; contradict it on copa; leave it open on rte, trec"
    assert "cb +0.203 (+0.183 to +0.223)" in claim.evidence
    assert "trec +0.100 (one seed)" in claim.evidence


def test_parameters_are_compared(rows):
    claim = by_text(rows, "It trains one vector")
    assert "at most 0.1 %" in claim.text
    assert claim.verdict == "contradict it"
    assert "0.3 % of the backbone" in claim.evidence
    assert "lora trains 20.0 times as many" in claim.evidence
    assert "prompt-tuning" not in claim.evidence


def test_range_of_shares_is_told(rows, make_row):
    rows = [*rows, make_row("sst2", trainable_parameters=9_000)]
    assert "0.3 % to 0.9 % of the backbone" in by_text(rows, "It trains one vector").evidence


def test_what_was_not_run_is_not_claimed(rows):
    only = [row for row in rows if row.method == "task-only"]
    assert {one.verdict for one in claims({"tiny": only})} == {
        "do not say",
        "cannot say",
        "cannot say for some",
        "cannot say: no length was searched for",
    }
    published = by_text(rows, "Its published scores")
    assert published.verdict == "cannot say"
    assert "T5-Base, T5-Large, Llama-3.2-1B, Qwen2.5-1.5B" in published.evidence


def test_sets_that_are_missing_or_partial_are_named(rows, make_row):
    rows = [*rows, make_row("boolq", note="64 of the 9,427 published training rows")]
    claim = by_text(rows, "Its scores on all")
    assert "not run: multirc, wic, csqa" in claim.evidence
    assert "boolq (64 of the 9,427" in claim.evidence


def test_every_set_whole_is_told_too(make_row):
    names = ("boolq", "cb", "copa", "multirc", "rte", "wic", "csqa")
    claim = by_text([make_row(name) for name in names], "Its scores on all")
    assert claim.evidence == "every set, with all published rows"


def other(configuration, **backbone):
    changed = Frozen(**{**configuration.backbone.model_dump(), **backbone})
    return configuration.model_copy(update={"backbone": changed})


def test_files_are_never_mixed_and_name_their_sets(rows, make_row, configuration):
    t5 = other(configuration, id="t5-base", architecture="t5")
    second = [
        make_row("cb", "capsule", 0, 0.5, configuration=t5),
        make_row("cb", "task-only", 0, 0.6, configuration=t5),
    ]
    found = {one.task: one for one in all_pairs({"pairs": rows, "t5": second}, "task-only")}
    assert found["cb (pairs)"].seeds == (0, 1, 2)
    assert found["cb (t5)"].differences == pytest.approx((-0.1,))


def test_settings_of_one_backbone_are_told_apart(make_row, configuration):
    settings = configuration.settings.model_copy(update={"epochs": 9})
    longer = configuration.model_copy(update={"settings": settings})
    files = {
        "short": [make_row(), make_row(method="task-only")],
        "long": [make_row(configuration=longer), make_row("cb", "task-only", configuration=longer)],
    }
    names = [one.task for one in all_pairs(files, "task-only")]
    assert names == ["cb (short)", "cb (long)"]


@pytest.mark.parametrize(
    ("architecture", "parameters", "name"),
    [
        ("t5", 222_903_552, "T5-Base"),
        ("t5", 737_668_096, "T5-Large"),
        ("llama", 1_235_814_400, "Llama-3.2-1B"),
        ("qwen2", 1_543_714_304, "Qwen2.5-1.5B"),
        ("qwen2", 7_070_619_136, "Qwen2.5-7B"),
        ("llama", 1_240_000_000, "Llama-3.2-1B"),
    ],
)
def test_published_backbone_is_known_by_architecture_and_size(
    make_row, configuration, architecture, parameters, name
):
    run = other(configuration, architecture=architecture, parameters=parameters)
    claim = by_text([make_row(configuration=run)], "Its published scores")
    assert claim.verdict == f"say something for {name}"
    assert name not in claim.evidence.split("not run on: ")[1]


@pytest.mark.parametrize(
    ("architecture", "parameters"),
    [
        ("llama", 30_000),
        ("llama", 3_212_749_824),
        ("t5", 60_506_624),
        ("t5", 247_577_856),
        ("qwen2", 494_032_768),
        ("bert", 222_903_552),
    ],
)
def test_another_backbone_is_not_a_published_one(make_row, configuration, architecture, parameters):
    run = other(configuration, architecture=architecture, parameters=parameters)
    claim = by_text([make_row(configuration=run)], "Its published scores")
    assert claim.verdict == "cannot say"
    assert claim.evidence.endswith(
        "not run on: T5-Base, T5-Large, Llama-3.2-1B, Qwen2.5-1.5B, Qwen2.5-7B"
    )


@pytest.mark.parametrize(
    ("trained", "verdict"),
    [
        ((900, 1_000), "support it"),
        ((1_001, 9_000), "contradict it"),
        ((900, 1_001), "support it on some backbones or sets, contradict it on others"),
    ],
)
def test_share_is_held_against_its_bound(make_row, trained, verdict):
    rows = [
        make_row(task, trainable_parameters=number)
        for task, number in zip(("cb", "copa"), trained, strict=True)
    ]
    assert by_text(rows, "It trains one vector").verdict == verdict


def test_equal_scores_are_called_equal(make_row):
    rows = [make_row("cb", name, seed) for name in ("capsule", "task-only") for seed in (0, 1, 2)]
    assert by_text(rows, "Its instance term helps").verdict == "find no difference on cb"
    assert conclusion(all_pairs({"tiny": rows}, "task-only")) == (
        "On no set do the seeds show that the instance term helps over task-only. Both score the "
        "same with every seed on cb. The mean difference over 1 set is +0.000."
    )


def test_claims_are_a_table(rows):
    head, body = as_lines(claims({"tiny": rows}))
    assert {len(row) for row in body} == {len(head)}
