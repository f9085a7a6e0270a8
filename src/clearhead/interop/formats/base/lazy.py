"""Tensors that are read, and dequantised, one at a time when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

ReadTensor = Callable[[], Tensor]


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name; each is read anew at every access, so that only what the caller keeps is in memory."""

    def __init__(self, readers: Mapping[str, ReadTensor]):
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:  # without reading the tensor, as Mapping would
        return name in self._readers
