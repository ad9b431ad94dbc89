"""A GPU that is not there: its tensors say `gpu:0` and compute on the CPU; mixed devices fail as on a real one.

    install()
    model = triform.load(folder, device="gpu")

Which devices an operation may mix is judged by torch's own rule for fake tensors (`FakeTensorMode`). Unlike fake
tensors these have numbers, so that whole roads run which look at results (sampling, losses, checkpoints), and their
answers can be compared with the CPU's. A backend belongs to a process for good: only `gpu_roads.py` installs it, in its
own.
"""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _python_dispatch, backend_registration
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "gpu"
CPU = torch.device("cpu")
aten = torch.ops.aten

COPIES = {aten.copy_.default, aten._to_copy.default}  # from any device to any
INDEXED = {
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}  # by CPU's
TO_PYTHON = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}  # a value, not a tensor
CHOOSE_ATTENTION, FORMULA = aten._fused_sdp_choice.default, 0

FAKES = FakeTensorMode(allow_non_fake_inputs=True)


class GpuTensor(Tensor):
    """A tensor on the pretended GPU; its numbers are in `plain`, on the CPU."""

    plain: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, plain: Tensor) -> "GpuTensor":
        made = Tensor._make_wrapper_subclass(
            cls, plain.shape, strides=plain.stride(), storage_offset=plain.storage_offset(), dtype=plain.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        made.plain = plain
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})

    def __repr__(self, **ignored: object) -> str:
        return f"gpu({self.plain!r})"

    def numpy(self, **ignored: object) -> None:
        raise TypeError("can't convert a tensor on a GPU to numpy; use Tensor.cpu() first")

    def data_ptr(self) -> int:
        return self.plain.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.plain.untyped_storage()

    def tolist(self) -> object:
        return self.plain.tolist()

    def __deepcopy__(self, memo: dict) -> Tensor:
        made = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = made = torch.nn.Parameter(made) if isinstance(self, torch.nn.Parameter) else made
        return made


class MakesGpuTensors(_python_dispatch.TorchDispatchMode):
    """Catches operations without tensors, such as `torch.empty(…, device="gpu")`."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class GpuModule(backend_registration._DummyBackendModule):
    """What torch asks of `torch.gpu`."""

    def get_rng_state(self, device: object = 0) -> Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = 0) -> None:
        """It draws nothing by itself."""

    def manual_seed(self, seed: int) -> None:
        """As above."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def install() -> None:
    """For the rest of the process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, GpuModule())
    # What is made in inference mode cannot be wrapped; it computes the same numbers.
    torch.inference_mode = lambda mode=True: torch.no_grad() if mode else torch.enable_grad()
    MakesGpuTensors().__enter__()
    torch._C._set_only_lift_cpu_tensors(True)  # numbers of Python become a tensor on the CPU, then one of the GPU


def find_device(func: object, tensors: list[Tensor]) -> torch.device:
    """Of the result; raises where devices are mixed."""
    if func in INDEXED:
        return tensors[0].device
    device, _ = FakeTensor._find_common_device(func, [imitate(tensor) for tensor in tensors])
    return device or CPU


def imitate(tensor: Tensor) -> FakeTensor:
    """Shape, dtype and device of a tensor, without numbers."""
    with _python_dispatch._disable_current_modes():
        return FakeTensor(FAKES, torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"), tensor.device)


def run(func, args, kwargs):
    """An operation: checked, computed on the CPU, its results on the device where they belong."""
    flat, spec = tree_flatten((args, kwargs))
    tensors = [each for each in flat if isinstance(each, Tensor)]
    asked = kwargs.get("device")
    if func is CHOOSE_ATTENTION:
        return FORMULA
    if func in TO_PYTHON:
        device = CPU
    elif asked is not None:
        device = torch.device(asked)
    elif func in COPIES:
        device = tensors[0].device
    else:
        device = find_device(func, tensors) if tensors else CPU
    owners = {id(each.plain): each for each in flat if isinstance(each, GpuTensor)}
    args, kwargs = tree_unflatten([to_plain(each) for each in flat], spec)
    with _python_dispatch._disable_current_modes():
        result = func(*args, **kwargs)
    return result if device.type == "cpu" else tree_map(lambda each: to_gpu(each, owners), result)


def to_plain(value: object) -> object:
    """The same on the CPU."""
    if isinstance(value, GpuTensor):
        return value.plain
    return CPU if isinstance(value, torch.device) else value


def to_gpu(value: object, owners: dict[int, GpuTensor]) -> object:
    """A tensor as one of the GPU: the same as before, where it was changed in place."""
    if not isinstance(value, Tensor):
        return value
    return owners[id(value)] if id(value) in owners else GpuTensor(value)
