"""Base of the classification tasks: each target is one word, the label."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset, LanguagePairDataset
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths
from omegaconf import II
from torch import Tensor, nn

from sut_fairseq import metrics
from sut_fairseq._process import check_target_padding, prepare_process, refuse_buckets
from sut_fairseq.errors import InputError
from sut_fairseq.modules.trained_words import keep_words
from sut_fairseq.tasks.balanced import BalancedLengths
from sut_fairseq.tasks.columns import order_of, read_column

# Options that would change what fairseq's search finds, or what it says about it.
_OF_SEARCH = (
    *("sampling", "sampling_topk", "sampling_topp", "temperature", "lm_path", "print_alignment"),
    *("diverse_beam_groups", "diversity_rate", "match_source_len", "min_len"),
)
# Logged by criterions of fairseq, which compute `accuracy` from them.
_ACCURACY_OF_SYMBOLS = {"n_correct", "total"}


@dataclass
class LabelTaskConfig(TranslationConfig):
    """Options of `translation`, accuracy by group, and balanced source lengths."""

    group_column: Optional[str] = field(  # noqa: UP045 - fairseq knows no `str | None`
        default=None,
        metadata={
            "help": "report validation accuracy for each value of this column (a file "
            "text/<split>.<column> in the data folder, one value a line)"
        },
    )
    balance_lengths: bool = field(
        default=False,
        metadata={"help": "in training, repeat sources so that all lengths are equally frequent"},
    )
    valid_subset: str = II("dataset.valid_subset")


class LabelTask(TranslationTask):
    """Base of the tasks whose targets are labels; a subclass defines how a model scores them.

    The labels are the words of the target dictionary that occur in training. Accuracy is logged in
    per cent, as `accuracy` and, in validation, `accuracy_<column>_<value>` with `--group-column`.
    """

    def __init__(self, cfg: LabelTaskConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        prepare_process()
        refuse_buckets(cfg)
        super().__init__(cfg, src_dict, tgt_dict)
        check_target_padding(self)
        if src_dict == tgt_dict:
            raise InputError(
                "classification needs a dictionary of the labels alone, but source and target "
                "share one: prepare the data without --joined."
            )
        self.labels = labels_of(tgt_dict)
        self.groups: list[str] = []

    def scores(self, model: Any, sample: dict[str, Any]) -> Tensor:
        """How likely a model finds each label, `(batch, num_labels)`: logits."""
        raise NotImplementedError

    def prepare(self, pairs: LanguagePairDataset) -> FairseqDataset:
        """Turn sentence pairs, whose targets have been checked, into what models read."""
        return pairs

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """Build a model, ours or fairseq's; its checkpoints keep the words of both dictionaries.

        A resumed training loads the state of the model, but not that of the task.
        """
        model: nn.Module = super().build_model(cfg, from_checkpoint)
        keep_words(model, self.src_dict.symbols, self.tgt_dict.symbols)
        return model

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load a split and check that each target is one known label.

        Raises:
            InputError: for a target that is not, if the column of groups is missing, or if the
                repeated training sentences are also the validation set.
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        _check_targets(split, self.datasets[split].tgt, self.tgt_dict, self.labels)
        dataset = self.datasets[split] = self.prepare(self.datasets[split])
        if self.cfg.group_column is not None and split != self.cfg.train_subset:
            folder = split_paths(self.cfg.data)[0]
            values = read_column(folder, split, self.cfg.group_column, len(dataset))
            new = sorted(set(values) - set(self.groups), key=order_of)
            self.groups += new
            groups = torch.tensor([self.groups.index(value) for value in values])
            self.datasets[split] = _WithGroups(dataset, groups)
        # fairseq's other commands pass the training's task: in them every sentence counts once.
        if self.cfg.balance_lengths and split == self.cfg.train_subset and "task_cfg" not in kwargs:
            if split in self.cfg.valid_subset.split(","):
                # fairseq keeps one data set per name.
                raise InputError(
                    f"--balance-lengths repeats sentences of `{split}`, which --valid-subset names "
                    "too: validate on other sets, and score this one after training with "
                    f"fairseq-validate --valid-subset {split}."
                )
            self.datasets[split] = BalancedLengths(dataset)

    @torch.no_grad()
    def label_scores(self, models: Sequence[Any], sample: dict[str, Any]) -> Tensor:
        """Log-probability of each label among all labels, the mean over the models of an ensemble.

        Args:
            models: in evaluation mode; the mean is over probabilities.
            sample: a batch; its target is not read.

        Returns:
            `(batch, num_labels)`, float32.
        """
        each = [self.scores(model, sample).float().log_softmax(dim=-1) for model in models]
        return torch.stack(each).logsumexp(dim=0).log_softmax(dim=-1)

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: nn.Module) -> None:
        """Log what the criterion logs, and accuracy: of labels if it is known, else of symbols.

        fairseq's criterions with `--report-accuracy` log that of symbols under the same name.
        """
        of_criterion = [
            {k: v for k, v in log.items() if k not in _ACCURACY_OF_SYMBOLS}
            if "accuracy_right" in log
            else log
            for log in logging_outputs
        ]
        super().reduce_metrics(of_criterion, criterion)
        names = [f"{self.cfg.group_column}_{value}" for value in self.groups]
        metrics.log_accuracy(logging_outputs, names)

    def build_generator(self, models: list[nn.Module], args: Any, **kwargs: Any) -> "LabelSearch":
        """The generator of fairseq-generate: it returns all labels, the most probable first.

        Raises:
            InputError: for options of a search that labels do not have.
        """
        usual = GenerationConfig()
        given = [
            f"--{name.replace('_', '-')}"
            for name in _OF_SEARCH
            if getattr(args, name, getattr(usual, name)) != getattr(usual, name)
        ]
        if given:
            raise InputError(
                "classification ranks all labels, without a search: leave "
                f"{' and '.join(given)} out."
            )
        return LabelSearch(self, score_reference=getattr(args, "score_reference", False))


class LabelSearch:
    """Has the interface of fairseq's `SequenceGenerator`; every label is a hypothesis.

    Args:
        task: has the labels, and scores them with a model.
        score_reference: whether the right label is the only hypothesis.
    """

    def __init__(self, task: LabelTask, *, score_reference: bool = False) -> None:
        self.task = task
        self.score_reference = score_reference
        self.symbols_to_strip_from_output = {task.tgt_dict.eos()}

    def generate(
        self, models: list[nn.Module], sample: dict[str, Any], **kwargs: Any
    ) -> list[list[dict[str, Any]]]:
        """For each sentence all labels, best first, or the right one alone.

        `score` is the log-probability among all labels in both cases.

        Raises:
            InputError: for search options that labels do not have, or if right labels are missing.
        """
        given = [name for name, value in kwargs.items() if value is not None]
        if given:
            raise InputError(
                f"classification predicts one label and knows no {', '.join(given)}: leave "
                "--prefix-size and --constraints out."
            )
        scores = self.task.label_scores(models, sample)
        labels = self.task.labels.to(scores.device)
        if self.score_reference:
            order = self._references(sample, labels)
        else:
            order = scores.argsort(dim=1, descending=True)
        return [
            [
                {
                    "tokens": torch.stack([label, label.new_tensor(self.task.tgt_dict.eos())]),
                    "score": score,
                    "positional_scores": torch.stack([score, torch.zeros_like(score)]),
                    "attention": None,
                    "alignment": None,
                }
                for label, score in zip(labels[indices], row)
            ]
            for indices, row in zip(order, scores.gather(1, order))
        ]

    def _references(self, sample: dict[str, Any], labels: Tensor) -> Tensor:
        """Index of each sentence's right label, `(batch, 1)`."""
        if sample.get("target") is None:
            raise InputError(
                "--score-reference needs sentences with their labels: use fairseq-generate on a "
                "prepared folder."
            )
        return torch.searchsorted(labels, sample["target"][:, :1].contiguous())


def labels_of(dictionary: Dictionary) -> Tensor:
    """The symbols of a target dictionary that occur in training, `(num_labels,)`, ascending.

    Raises:
        InputError: if there are none.
    """
    # fairseq pads a dictionary to a round size with words that never occur.
    labels = [i for i in range(dictionary.nspecial, len(dictionary)) if dictionary.count[i] > 0]
    if not labels:
        raise InputError(
            "the target dictionary has no label that occurs in training: prepare the data again."
        )
    return torch.tensor(labels)


class _WithGroups(BaseWrapperDataset):
    """Adds to each batch the group of its sentences, `(batch,)`."""

    def __init__(self, dataset: FairseqDataset, groups: Tensor) -> None:
        super().__init__(dataset)
        self.groups = groups
        self.src_sizes, self.tgt_sizes = dataset.src_sizes, dataset.tgt_sizes

    def collater(self, samples: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        batch = self.dataset.collater(samples, **kwargs)
        if batch:
            batch["group"] = self.groups[batch["id"]]
        return batch


def _check_targets(
    split: str, targets: FairseqDataset, dictionary: Dictionary, labels: Tensor
) -> None:
    """Refuse a split with a target that is not one of the labels."""
    known = set(labels.tolist())
    for number in range(len(targets)):
        target = targets[number].tolist()
        if len(target) != 2:
            raise InputError(
                f"pair {number} of the split `{split}` has a target of {len(target) - 1} words "
                f"(`{dictionary.string(target)[:60]}`), but classification needs one label: "
                "prepare the data with one label a line, or use --task translation."
            )
        if target[0] not in known:
            names = dictionary.string(labels).split()
            raise InputError(
                f"pair {number} of the split `{split}` has a label that training does not have; "
                f"the labels are: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
            )
