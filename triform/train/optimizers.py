"""AdamW (fused), or Muon for the matrices inside blocks with AdamW for the rest; clipping; the EMA of weights.

Weight decay applies to matrices only. State is named by the parameter's path, so that it can be saved as tensors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from triform.errors import TriformError
from triform.train.run_config import Config

Named: TypeAlias = dict[str, nn.Parameter]
TensorLayout: TypeAlias = dict[str, tuple[torch.Size, torch.dtype]]


def make_layout(tensors: Mapping[str, Tensor]) -> TensorLayout:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


class Muon(torch.optim.Optimizer):
    """W ← (1 − rate · decay) W − rate · 0.2 √max(rows, columns) · orthogonal(m), m with Nesterov's momentum.

    The factor makes steps as large as AdamW's (Liu et al. 2025), so that one learning rate serves both. In the weights'
    own precision: torch's version computes in bfloat16, which many CPUs only emulate.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, momentum: float = 0.95) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                step = orthogonalize(weight.grad.lerp(state["momentum"], group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(step, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def orthogonalize(matrix: Tensor, *, rounds: int = 5) -> Tensor:
    """Nearly U Vᵀ of matrix = U S Vᵀ, singular values brought to 0.7 … 1.2 by Newton–Schulz (Jordan 2024)."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        a = x @ x.T
        b = torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, b, x, beta=3.4445)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def check_any_trained(network: nn.Module) -> None:
    if not any(p.requires_grad for p in network.parameters()):
        raise TriformError("all weights are frozen: there is nothing to train")


class Optimizer:
    """One or two optimizers that step together; their state is saved and restored as `tensors` by path."""

    def __init__(self, network: nn.Module, config: Config) -> None:
        check_any_trained(network)
        self.named = {path: p for path, p in network.named_parameters() if p.requires_grad}
        self.learning_rate = config.learning_rate
        muon = config.optimizer == "muon"
        inside = {path: p for path, p in self.named.items() if muon and ".blocks." in path and p.dim() == 2}
        rest = {path: p for path, p in self.named.items() if path not in inside}
        self.parts: list[torch.optim.Optimizer] = []
        if inside:
            self.parts.append(Muon(_groups(inside, config.weight_decay), lr=config.learning_rate))
        if rest:
            betas, groups = (config.beta1, config.beta2), _groups(rest, config.weight_decay)
            self.parts.append(torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, fused=True))

    def allocate_state(self) -> None:
        """Allocates the state before the first step, since later it would lie between freed activations: this saves
        memory with several passes per step (see process_memory.py), or if freed memory stays with the process."""
        for part in self.parts:
            for weight in (weight for group in part.param_groups for weight in group["params"]):
                if isinstance(part, Muon):
                    part.state[weight] = {"momentum": torch.zeros_like(weight)}
                else:
                    moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                    part.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}

    def step(self, *, factor: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.learning_rate * factor
            part.step()
        # A fused step does not count versions; caches of packed weights depend on them.
        torch.autograd.graph.increment_version(list(self.named.values()))

    def list_gradients(self) -> list[Tensor]:
        return [p.grad for p in self.named.values() if p.grad is not None]

    def take_gradients(self) -> dict[str, Tensor]:
        """The gradients by path; the parameters are left without."""
        taken = {path: p.grad for path, p in self.named.items() if p.grad is not None}
        self.clear_gradients()
        return taken

    def clear_gradients(self) -> None:
        for p in self.named.values():
            p.grad = None

    def reset_state(self) -> None:
        """Resets the state to that before the first step, in the same memory, so that the heap stays as measured."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{path}:{name}": value
            for path, p in self.named.items()
            for part in self.parts
            for name, value in part.state.get(p, {}).items()
        }

    def describe_state(self) -> TensorLayout:
        """Shape and dtype of all state that may exist."""
        known: TensorLayout = {}
        owners = self._owners()
        for path, p in self.named.items():
            if isinstance(owners[id(p)], Muon):
                known[f"{path}:momentum"] = (p.shape, p.dtype)
            else:
                known |= {f"{path}:{name}": (p.shape, p.dtype) for name in ("exp_avg", "exp_avg_sq")}
                known[f"{path}:step"] = (torch.Size(), torch.float32)
        return known

    def _owners(self) -> dict[int, torch.optim.Optimizer]:
        return {id(p): part for part in self.parts for group in part.param_groups for p in group["params"]}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        owners = self._owners()
        for key, value in tensors.items():
            path, name = key.rsplit(":", 1)
            p = self.named[path]
            owners[id(p)].state[p][name] = value.to(p.device, copy=True)


def _groups(named: Named, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices, none for norms and biases."""
    matrices = [p for p in named.values() if p.dim() >= 2]
    others = [p for p in named.values() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def compute_norm(gradients: list[Tensor]) -> float:
    """The norm of all gradients together; not finite if any of them is not."""
    return float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0


def scale_gradients(gradients: list[Tensor], by: float) -> None:
    if gradients and by != 1.0:
        torch._foreach_mul_(gradients, by)


class WeightAverage:
    """EMA of the weights: a ← d a + (1 − d) w per step; d rises with the steps, so that the first weights fade."""

    def __init__(self, named: Named, *, decay: float) -> None:
        self.named, self.decay = named, decay
        self.copies = {path: p.detach().clone() for path, p in named.items()} if decay else {}

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.copies:
            decay = min(self.decay, (1 + step) / (10 + step))
            weights = [self.named[path].detach() for path in self.copies]
            torch._foreach_lerp_(list(self.copies.values()), weights, 1 - decay)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """The network has the average as its weights inside the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for path, copy in self.copies.items():
            weight = self.named[path]
            weight.data, self.copies[path] = copy, weight.data

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.copies)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for path, copy in self.copies.items():
            copy.copy_(tensors[path])
