"""A network whose matrices are in few bits: linear layers, the token table and the language-model head.

The modules keep their paths; norms, biases and small tables stay float32. `weight` makes float32 numbers of a matrix
each time it is asked for: for looking inside, not for computing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from triform.core.build import build_skeleton
from triform.core.forms import Form, TokenTable
from triform.core.output_heads import LanguageHead
from triform.kernels.packed_matrix import PackedMatrix
from triform.shapes import XD, XV
from triform.spec import ModelSpec
from triform.weight_kinds import KINDS, WeightKind

TABLE, OWN = "token.weight", "readout.own"
ENDING = ".weight"


class QuantizedLinear(nn.Module):
    """x Wᵀ + b, W in few bits"""

    matrix: PackedMatrix
    bias: nn.Parameter | None

    def __init__(self, matrix: PackedMatrix, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = matrix.shape
        self.bias = bias
        hold_matrix(self, matrix)

    @property
    def weight(self) -> Tensor:
        return self.matrix.to_float()

    def forward(self, x: XD) -> XV:
        return self.matrix.matmul(x, self.bias)


class QuantizedTable(TokenTable):
    """One row of W for each id, W in few bits"""

    matrix: PackedMatrix

    def __init__(self, matrix: PackedMatrix) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = matrix.shape
        hold_matrix(self, matrix)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.matrix.to_float()

    @property
    def table(self) -> Tensor:
        """The shape without numbers: a head in few bits has the matrix itself, others do not read the table."""
        return torch.empty(self.matrix.shape, device="meta")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def device(self) -> torch.device:
        return self.matrix.data.device

    def forward(self, ids: Tensor) -> Tensor:
        return self.matrix.rows(ids)


class QuantizedHead(LanguageHead):
    """logits = ready(x) Wᵀ + bias, W in few bits; all else belongs to the head that it takes the place of."""

    matrix: PackedMatrix

    def __init__(self, head: LanguageHead, matrix: PackedMatrix) -> None:
        super().__init__()
        self._modules, self._buffers = head._modules, head._buffers
        self._parameters = head._parameters
        self._parameters.pop(OWN.removeprefix("readout."), None)
        self.__dict__ |= {"ready": head.ready, "bias": head.bias}
        hold_matrix(self, matrix)

    def weight(self, table: Tensor) -> Tensor:
        return self.matrix.to_float()

    def forward(self, x: XD, table: Tensor) -> XV:
        return self.matrix.matmul(self.ready(x), self.bias())


def hold_matrix(module: "QuantizedLinear | QuantizedTable | QuantizedHead", matrix: PackedMatrix) -> None:
    """The bytes are a buffer too, so that copies of a network share them or not, as it is with other weights."""
    module.matrix = matrix
    module.register_buffer("packed", matrix.data, persistent=False)


def build_quantized(spec: ModelSpec, *, matrices: Mapping[str, PackedMatrix], others: Mapping[str, Tensor]) -> Form:
    """The network of a spec: `matrices` by the path of their weight, all other tensors by theirs; trainable without
    matrices in few bits."""
    network = build_skeleton(spec)
    for path, matrix in matrices.items():
        if path == TABLE:
            network.token = QuantizedTable(matrix)
        elif path != OWN:
            place = path.removesuffix(ENDING)
            plain = cast(nn.Linear, network.get_submodule(place))
            network.set_submodule(place, QuantizedLinear(matrix, cast("nn.Parameter | None", plain.bias)))
    if isinstance(network.readout, LanguageHead):
        name = OWN.removeprefix("readout.")
        if head := matrices.get(OWN if name in network.readout._parameters else TABLE):
            network.readout = QuantizedHead(network.readout, head)
    network.load_state_dict(others, assign=True)
    return network.requires_grad_(not matrices).eval()


def find_matrices(network: nn.Module) -> Iterator[tuple[str, PackedMatrix]]:
    """The matrices in few bits of a network by the path of their weight; a tied head's is the table's."""
    for path, module in network.named_modules():
        if isinstance(module, QuantizedHead):
            if module.matrix is not cast(QuantizedTable, network.get_submodule("token")).matrix:
                yield OWN, module.matrix
        elif isinstance(module, QuantizedLinear | QuantizedTable):
            yield path + ENDING, module.matrix


def is_quantized(network: nn.Module) -> bool:
    return next(find_matrices(network), None) is not None


def bytes_of_network(network: nn.Module) -> int:
    """Of all its weights, each counted once."""
    tensors = {id(x): x for x in (*network.parameters(), *network.buffers())}
    return sum(x.numel() * x.element_size() for x in tensors.values())


def name_kind(matrices: Iterable[tuple[str, PackedMatrix]]) -> WeightKind:
    """What a network with these is called: the kind with the fewest bits."""
    kinds = {matrix.kind for _, matrix in matrices}
    return next((kind for kind in reversed(KINDS) if kind in kinds), "float32")
