"""What a causal `Transformer` remembers of the tokens so far, so that more tokens cost no second look at them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from attention.linear import State
from attention.window import WindowState


class KeyValues(NamedTuple):
    """What a softmax layer remembers: every key and value, (batch, head, time, dim), and which are real, (batch, time)."""

    key: Tensor
    value: Tensor
    key_mask: Tensor

    def index_select(self, index: Tensor) -> KeyValues:
        """The entries `index` of the batch, as beam search reorders them."""
        return KeyValues(*(part.index_select(0, index) for part in self))

    def detach(self) -> KeyValues:
        """The same values without gradient history."""
        return KeyValues(*(part.detach() for part in self))


class Memory(NamedTuple):
    """Of each layer a `State` (constant size, with a window `WindowState`) or, of softmax, `KeyValues`."""

    layers: tuple[State | WindowState | KeyValues, ...]
    length: Tensor  # (batch,) real tokens seen

    def index_select(self, index: Tensor) -> Memory:
        """The memories of the batch entries `index`, as beam search reorders them."""
        return Memory(tuple(layer.index_select(index) for layer in self.layers), self.length.index_select(0, index))

    def detach(self) -> Memory:
        """The same values without gradient history."""
        return Memory(tuple(layer.detach() for layer in self.layers), self.length.detach())


def checked_length(memory: Memory, batch: int, layers: int) -> Tensor:
    """The memory's lengths; ValueError if it is not of such a model and batch."""
    if not isinstance(memory, Memory):
        raise ValueError(f"memory must be a Memory, got a {type(memory).__name__}")
    if len(memory.layers) != layers or tuple(memory.length.shape) != (batch,):
        sizes = (len(memory.layers), tuple(memory.length.shape))
        raise ValueError(f"memory must be of {layers} layers and {batch} sequences, got {sizes}")
    return memory.length
