"""What `sut-import` refuses, each in a sentence: other checkpoints, other outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sut_fairseq.checkpoints.published import names, translate
from sut_fairseq.errors import InputError
from sut_fairseq.inference.importing import import_published
from sut_fairseq.inference.original import Outputs, compare, read_outputs
from tests.published import WORDS, checkpoint

State = dict[str, Any]
BLOCK = "encoder.universal_layer"


def without(*keys: str) -> Callable[[State], object]:
    return lambda state: [state["model"].pop(key) for key in keys]


def changed(key: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], object]:
    return lambda state: state["model"].update({key: change(state["model"][key])})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda state: state.update(args=None, cfg=None), "it has no settings"),
        (without("encoder.embed_tokens.weight"), r"it lacks `encoder\.embed_tokens\.weight`\."),
        (
            without(*(f"{BLOCK}.moe.experts.{name}" for name in "wb"),
                    *(f"encoder.halting_universal_layer.mod.moe.experts.{name}" for name in "wb")),
            r"it lacks `encoder\.universal_layer\.moe\.experts\.w` and 1 more\.",
        ),
        (
            lambda state: state["model"].update(extra=torch.ones(1), more=torch.ones(1)),
            r"it has the unknown `extra` and 1 more\.",
        ),
        (
            lambda state: setattr(state["cfg"]["model"], "decoder_halting", False),
            r"it has the unknown `decoder\.halting_universal_layer\._gate\.0\.weight` and 2 more",
        ),
        (
            lambda state: setattr(state["cfg"]["model"], "encoder_normalize_before", True),
            r"it lacks `encoder\.layer_norm\.weight` and 1 more",
        ),
        (
            lambda state: setattr(state["cfg"]["model"], "layernorm_embedding", True),
            "it was trained with --layernorm-embedding, which this package's model does not have",
        ),
        (
            changed(f"{BLOCK}.self_attn.k_proj.weight", lambda tensor: tensor + 1),
            "which are one tensor in the published code, with different values",
        ),
        (
            changed("decoder.output_projection.weight", lambda tensor: tensor + 1),
            "embeddings are shared, but the tensors have different values",
        ),
        (
            changed("decoder.halting_universal_layer._gate.3.weight", lambda tensor: tensor[:1]),
            r"should be \(2, size\), but is \(1, 12\)",
        ),
        (
            lambda state: [
                changed(f"{name}.self_attn.rel_pos_emb", lambda tensor: tensor[..., :6])(state)
                for name in (BLOCK, "encoder.halting_universal_layer.mod")
            ],
            r"should be \(heads, size, an odd number\), but is \(2, 4, 6\)",
        ),
        (
            lambda state: [
                changed(f"{name}.self_attn.rel_pos_emb", lambda tensor: tensor[..., :1])(state)
                for name in (BLOCK, "encoder.halting_universal_layer.mod")
            ],
            r"should be \(heads, size, an odd number\), but is \(2, 4, 1\)",
        ),
    ],
)  # fmt: skip
def test_other_checkpoints_are_refused(damage: Callable[[State], object], said: str) -> None:
    state = checkpoint()
    damage(state)
    with pytest.raises(InputError, match=said):
        translate(state)


def test_sides_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match=r"differ in `attention_top_k` \(2 and 3\)"):
        translate(checkpoint(decoder_attn_k=3))


def test_tensors_that_do_not_fit_together(tmp_path: Path) -> None:
    state = checkpoint()
    state["model"]["decoder.universal_layer.encoder_attn.k_proj.weight"] = torch.ones(8, 5)
    for key in [key for key in state["model"] if "_layer.mod." in key]:
        del state["model"][key]
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(InputError, match=r"its tensors do not fit together \(size mismatch for"):
        import_published(tmp_path / "odd.pt")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encoder_ff_k": "8"}, "its setting `encoder_ff_k` must be a whole number, but is '8'"),
        ({"encoder_attn_k": [1]}, r"`encoder_attn_k` must be a whole number, but is \[1\]"),
        ({"encoder_attn_k": 2.5}, r"`encoder_attn_k` must be a whole number, but is 2.5"),
        ({"gating_dropout": "0.1"}, r"its setting `gating_dropout` must be a number, but is '0.1'"),
        ({"max_source_positions": -1}, "`max_source_positions` must be at least 1, but is -1"),
        ({"dropout": 1.5}, "`dropout` must be at least 0 and less than 1, but is 1.5"),
    ],
)
def test_odd_settings_are_refused(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    torch.save(checkpoint(**settings), tmp_path / "odd.pt")
    with pytest.raises(InputError, match=sentence):
        import_published(tmp_path / "odd.pt")


def test_a_checkpoint_of_ours_is_refused(tmp_path: Path) -> None:
    torch.save(import_published(saved(tmp_path)).checkpoint(), tmp_path / "ours.pt")
    with pytest.raises(InputError, match=r"cannot be imported: its parameters are not those"):
        import_published(tmp_path / "ours.pt")


def test_thresholds_outside_the_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`alpha_threshold` must be greater than 0, at most 1"):
        import_published(saved(tmp_path), alpha_threshold=1.5)


def saved(folder: Path) -> Path:
    torch.save(checkpoint(), folder / "theirs.pt")
    return folder / "theirs.pt"


def test_copies_of_shared_tensors_are_one_again() -> None:
    """Tools that average checkpoints store every name by itself, and drop what they do not know."""
    state = checkpoint()
    state["model"] = {key: tensor.clone() for key, tensor in state["model"].items()}
    tensors = translate(state).tensors
    shared = {key for key in tensors if tensors[key] is tensors["encoder.embedding.tokens.weight"]}
    assert shared == {
        "encoder.embedding.tokens.weight",
        "decoder.embedding.tokens.weight",
        "decoder.output_projection.weight",
    }


def test_every_name_is_there_once() -> None:
    for side in ("encoder", "decoder"):
        table = names(side, halts=True, pre_norm=True)
        assert len(set(table.values())) == len(table)


def test_the_outermost_embeddings_are_those_beside_them() -> None:
    """Where the published code clips offsets: 2 with 7 of them, from -3 to 3."""
    state = checkpoint()
    theirs = state["model"][f"{BLOCK}.self_attn.rel_pos_emb"].clone()
    translation = translate(state)
    ours = translation.tensors["encoder.stack.block.self_attention.core.positions.embedding"]
    assert translation.options["attention_window"] == 3
    assert torch.equal(ours, theirs[..., [1, 1, 2, 3, 4, 5, 5]].transpose(1, 2))
    assert torch.equal(state["model"][f"{BLOCK}.self_attn.rel_pos_emb"], theirs)


CONTENT = {
    "src_tokens": np.full((2, 3), 5),
    "prev_output_tokens": np.full((2, 4), 5),
    "logits": np.zeros((2, 4, WORDS), dtype=np.float32),
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"logits": None}, "needs `logits`, a tensor of 3 dimensions; it has none of that name"),
        ({"src_tokens": np.ones(3, dtype=int)}, r"2 dimensions; it has \(3,\)"),
        ({"src_tokens": np.ones((2, 3))}, "`src_tokens` must be whole numbers"),
        ({"src_tokens": np.ones((0, 3), dtype=int)}, "`src_tokens` is empty"),
        ({"logits": np.ones((2, 4, 3), dtype=int)}, "`logits` must be floating-point numbers"),
        ({"src_tokens": np.full((3, 3), 5)}, "these sizes are not of one batch"),
        ({"alpha_threshold": 0.0}, r"`alpha_threshold` must be a number in \(0, 1\], but is 0\.0"),
        ({"alpha_threshold": np.ones(2)}, r"must be a number in \(0, 1\], but is \(2,\)"),
    ],
)
def test_other_files_of_outputs_are_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    content = {key: one for key, one in {**CONTENT, **changes}.items() if one is not None}
    np.savez(tmp_path / "outputs.npz", **content)
    with pytest.raises(InputError, match=said):
        read_outputs(tmp_path / "outputs.npz")


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        read_outputs(tmp_path / "nothing.npz")
    for name in ("text.npz", "text.pt"):
        (tmp_path / name).write_text("no numbers")
        with pytest.raises(InputError, match="is no file of outputs"):
            read_outputs(tmp_path / name)
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(InputError, match="is no file of outputs: give a .npz"):
        read_outputs(tmp_path / "list.pt")


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "outputs.npz", **CONTENT, alpha_threshold=0.25)
    tensors = {key: torch.from_numpy(one) for key, one in CONTENT.items()}
    torch.save({**tensors, "alpha_threshold": 0.25}, tmp_path / "outputs.pt")
    first, second = (read_outputs(tmp_path / f"outputs.{ending}") for ending in ("npz", "pt"))
    assert first.alpha_threshold == second.alpha_threshold == 0.25
    for name in CONTENT:
        assert torch.equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"src_tokens": torch.full((1, 2), WORDS)}, "must be numbers of words, from 0 to 12"),
        ({"prev_output_tokens": torch.full((1, 3), -1)}, "`prev_output_tokens` must be numbers"),
        ({"prev_output_tokens": torch.full((1, 3), 1)}, "`prev_output_tokens` has only padding"),
        ({"src_tokens": torch.full((1, 2000), 5)}, "has 2000 tokens, but the model takes 1024"),
        ({"logits": torch.zeros(1, 3, 9)}, "`logits` has 9 words, but the model 13"),
    ],
)
def test_outputs_of_other_models_are_refused(
    changes: dict[str, torch.Tensor], said: str, tmp_path: Path
) -> None:
    fitting = dict(
        src_tokens=torch.full((1, 2), 5),
        prev_output_tokens=torch.full((1, 3), 5),
        logits=torch.zeros(1, 3, WORDS),
    )
    model = import_published(saved(tmp_path)).model
    with pytest.raises(InputError, match=said):
        compare(model, Outputs(**{**fitting, **changes}), 0.5, "outputs.npz")
