"""Classification with an encoder-decoder model: the label is the only word of the target."""

from __future__ import annotations

from typing import Any

from fairseq.tasks import register_task
from torch import Tensor, nn

from sut_fairseq import metrics
from sut_fairseq.errors import InputError
from sut_fairseq.tasks.labels import LabelTask, LabelTaskConfig


@register_task("classification_as_translation", dataclass=LabelTaskConfig)
class ClassificationAsTranslationTask(LabelTask):
    """Classification with any encoder-decoder model: the label is the only target word.

    Prediction takes one step of the decoder and chooses the most probable label.
    """

    def scores(self, model: Any, sample: dict[str, Any]) -> Tensor:
        """Log-probability of each label as the first word, `(batch, num_labels)`."""
        source = sample["net_input"]["src_tokens"]
        # fairseq's decoder inputs start with the end-of-sentence symbol.
        start = source.new_full((source.size(0), 1), self.tgt_dict.eos())
        output = model(**{**sample["net_input"], "prev_output_tokens": start})
        return self._of_first_word(model, output)

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion.

        Raises:
            InputError: with `--ignore-prefix-size`, which would leave labels out of the loss.
        """
        if getattr(cfg, "ignore_prefix_size", 0):
            raise InputError(
                "--ignore-prefix-size leaves the label, the only word of a target, out of the "
                "loss: leave the option out."
            )
        return super().build_criterion(cfg, from_checkpoint)

    def valid_step(
        self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of the criterion, and counts of correct predictions."""
        outputs: list[Any] = []
        hook = model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
        try:
            loss, sample_size, log = super().valid_step(sample, model, criterion)
        finally:
            hook.remove()
        # The criterion's forward pass includes the step that predicts a label, so reuse it.
        scores = self._of_first_word(model, outputs[-1]) if outputs else self.scores(model, sample)
        scores = scores[: len(sample["target"])]  # R-Drop computes a batch twice in one pass
        predicted = scores.argmax(dim=1)
        right = self.labels.to(predicted.device)[predicted] == sample["target"][:, 0]
        log |= metrics.accuracy_sums(right, sample.get("group"), len(self.groups))
        return loss, sample_size, log

    def _of_first_word(self, model: Any, output: Any) -> Tensor:
        """A model's log-probability of each label as the first word, `(batch, num_labels)`."""
        symbols: Tensor = model.get_normalized_probs(output, log_probs=True)[:, 0]
        return symbols[:, self.labels.to(symbols.device)]
