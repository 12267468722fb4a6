"""The decoding cache: growth, steps kept apart, reordering."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory

NUM_STEPS, BATCH, HEADS, DIM = 3, 4, 2, 5


def decode(cache: DecodingCache, chunks: list[int], batch: int = BATCH, seed: int = 0) -> Tensor:
    """Write chunks of positions, check what each step gets back; return all keys written.

    Values are the keys' negatives, so that a mix-up of the two shows.
    """
    generator = torch.Generator().manual_seed(seed)
    written = torch.empty(NUM_STEPS, batch, HEADS, 0, DIM)
    for num_new in chunks:
        start = cache.length
        keys = torch.randn(NUM_STEPS, batch, HEADS, num_new, DIM, generator=generator)
        written = torch.cat([written, keys], dim=3)
        for step in range(NUM_STEPS):
            memory = cache.extend(step, keys[step], -keys[step])
            assert memory.query_offset == start == cache.length
            assert memory.padding_mask is None
            assert torch.equal(memory.keys[:, :, start:], keys[step])
            assert torch.equal(memory.values, -memory.keys)
        cache.advance(num_new)
        assert cache.length == start + num_new
    return written


def read(cache: DecodingCache, batch: int = BATCH) -> Tensor:
    """The keys of all held positions, `(num_steps, batch, num_heads, length, head_dim)`."""
    nothing = torch.zeros(batch, HEADS, 0, DIM)
    return torch.stack([cache.extend(step, nothing, nothing).keys for step in range(NUM_STEPS)])


def test_holds_every_position_at_every_step_as_it_grows() -> None:
    for chunks in ([1] * 70, [20, 1, 1], [1, 40], [3, 3, 15, 16]):
        cache = DecodingCache(NUM_STEPS)
        written = decode(cache, chunks)
        assert torch.equal(read(cache), written)


def test_growing_copies_seldom() -> None:
    """Each buffer is at least twice as long as the one before."""
    cache = DecodingCache(NUM_STEPS)
    new = torch.zeros(1, HEADS, 1, DIM)
    buffers = set()
    for _ in range(200):
        for step in range(NUM_STEPS):
            buffers.add(cache.extend(step, new, new).keys.untyped_storage().data_ptr())
        cache.advance(1)
    assert len(buffers) <= 5


def test_reorders_all_steps_with_repeated_and_dropped_sentences() -> None:
    cache = DecodingCache(NUM_STEPS)
    written = decode(cache, [1, 1, 17])
    for order in ([2, 2, 0, 3], [1, 0], [1, 1, 0, 0, 1]):
        order = torch.tensor(order)
        cache.reorder(order)
        written = written.index_select(1, order)
        assert torch.equal(read(cache, len(order)), written)
        assert cache.length == written.shape[3]
        more = decode(cache, [2], batch=len(order), seed=len(order))
        written = torch.cat([written, more], dim=3)
        assert torch.equal(read(cache, len(order)), written)


def test_reorders_the_memory_of_cross_attention() -> None:
    cache = DecodingCache(NUM_STEPS)
    decode(cache, [1])
    keys = torch.randn(BATCH, HEADS, 6, DIM)
    mask = torch.arange(6) >= torch.tensor([[6], [3], [5], [1]])
    cache.memory = Memory(keys, -keys, mask)
    order = torch.tensor([3, 3, 1])
    cache.reorder(order)
    assert torch.equal(cache.memory.keys, keys[order])
    assert torch.equal(cache.memory.values, -keys[order])
    assert torch.equal(cache.memory.padding_mask, mask[order])
    assert read(cache, 3).shape[1] == 3


def test_reorders_a_memory_without_padding() -> None:
    cache = DecodingCache(NUM_STEPS)
    decode(cache, [1])
    keys = torch.randn(BATCH, HEADS, 6, DIM)
    cache.memory = Memory(keys, -keys)
    cache.reorder(torch.tensor([1, 0, 1]))
    assert torch.equal(cache.memory.keys, keys[[1, 0, 1]])
    assert cache.memory.padding_mask is None


def test_the_order_as_it_is_changes_nothing() -> None:
    cache = DecodingCache(NUM_STEPS)
    written = decode(cache, [3])
    cache.memory = Memory(torch.randn(BATCH, HEADS, 6, DIM), torch.randn(BATCH, HEADS, 6, DIM))
    before = cache.memory
    cache.reorder(torch.arange(BATCH))
    assert torch.equal(read(cache), written)
    assert torch.equal(cache.memory.keys, before.keys)


def test_an_empty_cache_can_be_reordered() -> None:
    cache = DecodingCache(NUM_STEPS)
    cache.reorder(torch.tensor([1, 0]))
    assert cache.length == 0 and cache.memory is None
    decode(cache, [1, 2])


def test_two_caches_share_nothing() -> None:
    one, other = DecodingCache(NUM_STEPS), DecodingCache(NUM_STEPS)
    written = decode(one, [2])
    decode(other, [2], seed=1)
    assert torch.equal(read(one), written)
