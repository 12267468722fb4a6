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


def assert_reads(
    memory: Memory, keys: Tensor, mask: Tensor | None, values: Tensor | None = None
) -> None:
    """What each sentence attends to, through `rows`."""
    assert torch.equal(memory.keys[memory.rows], keys)
    assert torch.equal(memory.values[memory.rows], -keys if values is None else values)
    if mask is None:
        assert memory.padding_mask is None
    else:
        assert torch.equal(memory.padding_mask[memory.rows], mask)


def read(cache: DecodingCache, batch: int = BATCH) -> Tensor:
    """The keys of all held positions, `(num_steps, batch, num_heads, length, head_dim)`."""
    nothing = torch.zeros(batch, HEADS, 0, DIM)
    return torch.stack([cache.extend(step, nothing, nothing).keys for step in range(NUM_STEPS)])


def test_holds_every_position_at_every_step_as_it_grows() -> None:
    for chunks in ([1] * 70, [20, 1, 1], [1, 40], [3, 3, 15, 16]):
        cache = DecodingCache()
        written = decode(cache, chunks)
        assert torch.equal(read(cache), written)


@torch.no_grad()
def test_growing_copies_seldom() -> None:
    """Each buffer of a step is at least twice as long as the one before."""
    cache = DecodingCache()
    new = torch.zeros(1, HEADS, 1, DIM)
    buffers = set()
    for _ in range(200):
        for step in range(NUM_STEPS):
            buffers.add(cache.extend(step, new, new).keys.untyped_storage().data_ptr())
        cache.advance(1)
    assert len(buffers) <= 5 * NUM_STEPS


@torch.no_grad()
def test_beams_that_stay_are_not_copied() -> None:
    cache = DecodingCache()
    written = decode(cache, [3])
    places = [tensor.data_ptr() for entry in cache._entries for tensor in entry]
    order = torch.tensor([0, 3, 2, 1])
    cache.reorder(order)
    assert [tensor.data_ptr() for entry in cache._entries for tensor in entry] == places
    assert torch.equal(read(cache), written[:, order])


def test_steps_that_nobody_takes_have_no_entry() -> None:
    """They are made up for when a later position comes that far."""
    cache = DecodingCache()
    new = [torch.randn(2, HEADS, 1, DIM) for _ in range(4)]
    cache.extend(0, new[0], -new[0])
    cache.fill(1, new[1], -new[1])
    cache.advance(1)
    assert cache.num_entries == 2
    for step in range(4):
        memory = cache.extend(step, new[2], -new[2])
        assert torch.equal(memory.keys, torch.cat([new[min(step, 1)], new[2]], dim=2))
        assert torch.equal(memory.values, -memory.keys)
    cache.advance(1)
    cache.fill(0, new[3], -new[3])
    assert cache.num_entries == 4
    for step, memory in enumerate(cache._entries):
        expected = torch.cat([new[min(step, 1)], new[2], new[3]], dim=2)
        assert torch.equal(memory[0][:, :, :3], expected)


def test_reorders_all_steps_with_repeated_and_dropped_sentences() -> None:
    cache = DecodingCache()
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
    cache = DecodingCache()
    decode(cache, [1])
    keys = torch.randn(BATCH, HEADS, 6, DIM)
    mask = torch.arange(6) >= torch.tensor([[6], [3], [5], [1]])
    cache.memory = Memory(keys, -keys, mask)
    order = torch.tensor([3, 3, 1])
    cache.reorder(order)
    assert_reads(cache.memory, keys[order], mask[order])
    assert cache.memory.keys.shape[0] == 2, "sentences without a hypothesis are dropped"
    assert read(cache, 3).shape[1] == 3
    cache.reorder(torch.tensor([2, 0, 0]))
    assert_reads(cache.memory, keys[[1, 3, 3]], mask[[1, 3, 3]])


def test_reorders_a_memory_without_padding() -> None:
    cache = DecodingCache()
    decode(cache, [1])
    keys = torch.randn(BATCH, HEADS, 6, DIM)
    cache.memory = Memory(keys, -keys)
    cache.reorder(torch.tensor([1, 0, 1]))
    assert_reads(cache.memory, keys[[1, 0, 1]], None)


def test_the_order_as_it_is_changes_nothing() -> None:
    cache = DecodingCache()
    written = decode(cache, [3])
    cache.memory = Memory(torch.randn(BATCH, HEADS, 6, DIM), torch.randn(BATCH, HEADS, 6, DIM))
    before = cache.memory
    cache.reorder(torch.arange(BATCH))
    assert torch.equal(read(cache), written)
    assert cache.memory.keys is before.keys
    assert_reads(cache.memory, before.keys, None, before.values)


def test_an_empty_cache_can_be_reordered() -> None:
    cache = DecodingCache()
    cache.reorder(torch.tensor([1, 0]))
    assert cache.length == 0 and cache.memory is None
    decode(cache, [1, 2])


def test_two_caches_share_nothing() -> None:
    one, other = DecodingCache(), DecodingCache()
    written = decode(one, [2])
    decode(other, [2], seed=1)
    assert torch.equal(read(one), written)
