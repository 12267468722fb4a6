"""Classifiers of whole sentences: task, criterion, and the encoder with its read-out."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from fairseq.data import LanguagePairDataset
from fairseq.data.data_utils import numpy_seed
from fairseq.logging import metrics as fairseq_metrics
from fairseq.optim.adam import Adam
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq.criterions.classification import ClassificationCriterion
from sut_fairseq.errors import InputError
from sut_fairseq.inference import costs
from sut_fairseq.inference.costs import Costs
from sut_fairseq.inference.results import Translation
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models.encoder_classifier import EncoderClassifier, EncoderClassifierConfig
from sut_fairseq.tasks.balanced import BalancedLengths
from sut_fairseq.tasks.labels import LabelTaskConfig
from sut_fairseq.tasks.sequence_classification import SequenceClassificationTask
from tests.models import HALTING, MIXTURE, dictionary
from tests.models import classification_task as task
from tests.models import small_classifier as classifier
from tests.models import task as other_task

WORDS = dictionary()
LENGTHS = (6, 2, 4)
PLAIN: dict[str, Any] = {}
EVERYTHING: dict[str, Any] = {**MIXTURE, **HALTING, "encoder_normalize_before": True}


def sources(side: str = "left", extra: int = 0, rows: slice = slice(None)) -> Tensor:
    """Sentences between begin and end, padded on a side and by some columns more."""
    generator = torch.Generator().manual_seed(1)
    width = max(LENGTHS[rows]) + extra
    table = []
    for length in LENGTHS:
        words = torch.randint(WORDS.nspecial, len(WORDS), (length - 2,), generator=generator)
        sentence = [WORDS.bos(), *words.tolist(), WORDS.eos()]
        table.append((sentence, [WORDS.pad()] * (width - length)))
    padded = [gap + text if side == "left" else text + gap for text, gap in table[rows]]
    return torch.tensor(padded)


def sample(side: str = "left") -> dict[str, Any]:
    """A batch as the task makes it."""
    labels = dictionary(5, "v")
    target = [[labels.index(f"v{number}"), labels.eos()] for number in (4, 0, 3)]
    return {
        "net_input": {"src_tokens": sources(side), "src_lengths": torch.tensor(LENGTHS)},
        "target": torch.tensor(target),
    }


def test_an_ensemble_means_the_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not their logarithms."""
    of_models = [torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log() + 3]
    asked = task()
    monkeypatch.setattr(asked, "scores", lambda model, sample: of_models[model])
    found = asked.label_scores([0, 1], {}).exp()
    torch.testing.assert_close(found, torch.tensor([[0.55, 0.45]]))


def test_sources_get_begin_and_end_and_labels_count_from_zero() -> None:
    words = [torch.tensor([5, 6, WORDS.eos()]), torch.tensor([7, WORDS.eos()])]
    labels = [torch.tensor([dictionary(5, "v").index(f"v{n}"), WORDS.eos()]) for n in (2, 4)]
    pairs = LanguagePairDataset(
        _Listed(words), [3, 2], WORDS, _Listed(labels), [2, 2], WORDS, shuffle=False
    )
    prepared = task().prepare(pairs)
    assert prepared.src_sizes.tolist() == [4, 3] and prepared.size(0) == (4, 2)
    batch = prepared.collater([prepared[0], prepared[1]])
    bos, pad, eos = WORDS.bos(), WORDS.pad(), WORDS.eos()
    assert batch["net_input"]["src_tokens"].tolist() == [[bos, 5, 6, eos], [bos, 7, eos, pad]]
    assert task().label_indices(batch).tolist() == [2, 4]


class _Listed(list):
    """What fairseq expects of a data set of token sequences."""

    @property
    def sizes(self) -> list[int]:
        return [len(item) for item in self]


@pytest.mark.parametrize("readout", ["first", "last"])
@pytest.mark.parametrize("options", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_padding_and_batch_mates_change_nothing(readout: str, options: dict[str, Any]) -> None:
    model = classifier(readout=readout, **options)
    scores = model(sources())[0]
    assert scores.shape == (3, 5)
    for other in (model(sources("right", 3))[0], model(sources("left", 2))[0]):
        torch.testing.assert_close(other, scores, rtol=1e-10, atol=1e-10)
    for row in range(3):
        alone = model(sources(rows=slice(row, row + 1)))[0]
        torch.testing.assert_close(alone[0], scores[row], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("readout", "column"), [("first", 0), ("last", 5)])
def test_the_column_that_is_read(readout: str, column: int) -> None:
    model = classifier(readout=readout)
    tokens = sources(rows=slice(0, 1))  # of 6 tokens, without padding
    states = model.encoder(tokens)["encoder_out"][0][column]
    torch.testing.assert_close(model(tokens)[0], model.output_projection(states))


def test_dropout_of_embedded_words() -> None:
    """That of everything else unless it is given, as 0 too."""
    for given, expected in ((None, 0.5), (0.2, 0.2), (0.0, 0.0)):
        model = classifier(dropout=0.5, embedding_dropout=given)
        assert model.encoder.embedding.dropout.p == expected
        assert model.encoder.stack.block.dropout.p == 0.5


def test_steps_beyond_the_length_in_training_only() -> None:
    """Sources of at most 6 tokens: 7 steps in training, and as many as ever in evaluation."""
    limited = classifier(encoder_layers=9, training_steps_beyond_length=1, **EVERYTHING)
    fixed = {steps: classifier(encoder_layers=steps, **EVERYTHING) for steps in (4, 7, 9)}
    for model in fixed.values():
        model.load_state_dict(limited.state_dict())
    expected = {steps: model(sources())[0] for steps, model in fixed.items()}
    assert not torch.allclose(expected[7], expected[9])
    for mode, steps in ((True, 7), (False, 9), (True, 7)):
        scores, extra = limited.train(mode)(sources("right", 2))
        torch.testing.assert_close(scores, expected[steps])
        assert extra["halting"]["encoder"].steps_possible == sum(LENGTHS) * steps
    scores.sum().backward()  # through the same parameters
    assert all(p.grad is not None for p in limited.parameters())
    few = classifier(encoder_layers=4, training_steps_beyond_length=1, **EVERYTHING).train()
    few.load_state_dict(limited.state_dict())
    torch.testing.assert_close(few(sources())[0], expected[4])  # never more than encoder_layers
    none = classifier(encoder_layers=9, training_steps_beyond_length=0, **EVERYTHING).train()
    _, extra = none(sources())
    assert extra["halting"]["encoder"].steps_possible == sum(LENGTHS) * 6


def test_probabilities() -> None:
    model = classifier()
    output = model(sources())
    logs = model.get_normalized_probs(output, log_probs=True)
    torch.testing.assert_close(logs.exp(), model.get_normalized_probs(output, log_probs=False))
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(3))
    assert model.max_positions() == (40, 40)


def test_it_has_every_option_of_the_encoder_decoder_model() -> None:
    own, others = (
        {field.name for field in fields(kind)}
        for kind in (EncoderClassifierConfig, UniversalTransformerConfig)
    )
    assert own - others == {"readout", "embedding_dropout", "training_steps_beyond_length"}
    assert others < own


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_objective(smoothing: float) -> None:
    """Cross-entropy over the labels and the means of the terms, all times the sentences."""
    model = classifier(**EVERYTHING)
    weights = dict(mutual_information=0.3, expected_depth=0.4)
    criterion = ClassificationCriterion(task(), False, smoothing, weights=weights)
    loss, sample_size, log = criterion(model, sample())
    assert sample_size == log["sample_size"] == log["ntokens"] == log["nsentences"] == 3

    scores, extra = model(**sample()["net_input"])
    logs = scores.float().log_softmax(dim=1)
    nll = -(logs[0, 4] + logs[1, 0] + logs[2, 3])
    target = torch.tensor([[4], [0], [3]])
    plain, _ = label_smoothed_nll_loss(logs, target, smoothing)  # fairseq's
    information = sum(losses.mutual_information(sums) for sums in extra["routing"].values())
    depth = losses.expected_depth(extra["halting"]["encoder"])
    torch.testing.assert_close(
        loss, plain + 3 * (0.3 * information + 0.4 * depth), check_dtype=False
    )
    torch.testing.assert_close(log["nll_loss"], nll)
    torch.testing.assert_close(log["expected_depth_loss"], 3 * depth)
    assert {"halting_encoder_tokens", "assignments_encoder.feed_forward"} < log.keys()
    right = scores.argmax(dim=1) == torch.tensor([4, 0, 3])
    assert log["accuracy_right"].tolist() == [right.sum()]
    assert log["accuracy_sentences"].tolist() == [3]


def test_a_single_label_is_certain() -> None:
    """There is no other one to give a share of the smoothing to."""
    alone = SequenceClassificationTask(LabelTaskConfig(), dictionary(), dictionary(1, "v"))
    criterion = ClassificationCriterion(alone, False, 0.1)
    batch = {**sample(), "target": alone.labels.new_tensor([[int(alone.labels[0]), 2]] * 3)}
    scores = torch.tensor([[1.5], [0.0], [-2.0]])
    loss, _, _ = criterion(lambda **inputs: (scores, {}), batch)
    assert float(loss) == 0


def test_accuracy_by_group() -> None:
    here = task()
    here.groups = ["1", "2"]
    criterion = ClassificationCriterion(here, False, 0.0)
    scores = F.one_hot(torch.tensor([4, 0, 0]), 5).float()  # right, right, wrong
    batch = {**sample(), "group": torch.tensor([0, 1, 1])}
    _, _, log = criterion(lambda **inputs: (scores, {}), batch)
    assert log["accuracy_right"].tolist() == [1, 1, 2]
    assert log["accuracy_sentences"].tolist() == [1, 2, 3]


def test_accuracy_of_symbols_where_that_of_labels_is_unknown() -> None:
    """fairseq's criterions log both by one name; in training no label is predicted."""
    criterion = LabelSmoothedCrossEntropyCriterion(other_task(), False, 0.1, report_accuracy=True)
    sums = dict(loss=1.0, nll_loss=1.0, ntokens=4, nsentences=2, sample_size=4)
    sums |= dict(n_correct=3, total=4)
    labels = dict(accuracy_right=torch.tensor([1]), accuracy_sentences=torch.tensor([2]))
    for more, expected in (({}, 75), (labels, 50)):
        with fairseq_metrics.aggregate(new_root=True) as logged:
            task().reduce_metrics([sums | more], criterion)
        assert logged.get_smoothed_values()["accuracy"] == expected


def test_scores_of_something_else() -> None:
    criterion = ClassificationCriterion(task(), False, 0.0)
    with pytest.raises(InputError, match=r"\(3, 5\) here, but got \(3, 7, 9\)"):
        criterion(lambda **inputs: (torch.zeros(3, 7, 9), {}), sample())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"readout": "middle"}, "`readout` must be one of first, last, but is middle instead."),
        ({"training_steps_beyond_length": -1}, "must be at least 0, but is -1 instead."),
        ({"encoder_layers": 0}, "`encoder_layers` must be at least 1, but is 0 instead."),
    ],
)
def test_bad_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        classifier(**options)


def test_one_dictionary_for_sources_and_labels() -> None:
    with pytest.raises(InputError, match="share one: prepare the data without --joined"):
        SequenceClassificationTask(LabelTaskConfig(), dictionary(), dictionary())


def test_a_task_without_labels() -> None:
    with pytest.raises(InputError, match="give --task sequence_classification"):
        EncoderClassifier.build_model(EncoderClassifierConfig(), other_task())


def test_adam_of_fairseq_decays_weights_as_adamw() -> None:
    """With epsilon 0, whose place in the formula is what the two differ in."""
    options = dict(lr=0.01, betas=(0.9, 0.98), eps=0.0, weight_decay=0.1)
    start = torch.linspace(-1, 2, 6, dtype=torch.float64)
    parameters = [start.clone().requires_grad_() for _ in range(2)]
    optimizers = [
        kind([parameter], **options)
        for kind, parameter in zip((Adam, torch.optim.AdamW), parameters)
    ]
    for step in range(4):
        for parameter, optimizer in zip(parameters, optimizers):
            parameter.grad = (parameter.detach() + step).sin()
            optimizer.step()
    torch.testing.assert_close(parameters[0], parameters[1], rtol=1e-12, atol=1e-12)


def test_the_cost_of_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one step, since the end that follows in the target is not predicted."""
    read: list[list[int]] = []
    monkeypatch.setattr(
        costs, "count_pair", lambda model, words, target, eos: read.append(target.tolist())
    )
    source, target = torch.tensor([5, WORDS.eos()]), torch.tensor([6, WORDS.eos()])
    label = Translation("w0", source_tokens=source, target_tokens=target)
    assert Costs(classifier(), task(), torch.device("cpu")).added_to(label) is label
    assert read == [[6]]


def test_balanced_lengths() -> None:
    """Each length is as frequent as the most frequent one, nothing is lost, batches are mixed."""
    lengths = [2] * 3 + [3] * 7 + [4] * 20
    words = dictionary()
    sources = [torch.full((length,), 5) for length in lengths]
    labels = [torch.tensor([4, 2]) for _ in lengths]
    pairs = LanguagePairDataset(
        *(sources, numpy.array(lengths), words), *(labels, numpy.full(30, 2), words)
    )
    balanced = BalancedLengths(pairs)
    assert len(balanced) == 60
    seen = Counter(int(balanced[index]["id"]) for index in range(60))
    assert set(seen) == set(range(30))
    assert [seen[index] for index in (0, 2, 3, 8, 9, 10)] == [7, 6, 3, 3, 2, 1]
    with numpy_seed(1):
        first, second = balanced.ordered_indices(), balanced.ordered_indices()
    with numpy_seed(1):
        assert (balanced.ordered_indices() == first).all()
    assert sorted(first) == sorted(second) == list(range(60))
    assert (first != second).any()
    batches = balanced.batch_by_size(first, max_sentences=20)
    assert [set(balanced.num_tokens_vec(batch)) for batch in batches] == [{2}, {3}, {4}]
    kept, left_out = balanced.filter_indices_by_size(first, (3, 10))
    assert len(kept) == 40 and len(left_out) == 20
    assert not balanced.can_reuse_epoch_itr_across_epochs
    assert (balanced.src_sizes == balanced.num_tokens_vec(numpy.arange(60))).all()
    for index in range(60):
        length = len(balanced[index]["source"])
        assert balanced.size(index) == (length, 2) and balanced.num_tokens(index) == length
    assert balanced.tgt_sizes.tolist() == [2] * 60
    sample = balanced.collater([balanced[int(index)] for index in batches[0]])
    assert sample["net_input"]["src_tokens"].shape == (20, 2)
