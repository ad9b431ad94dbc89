"""The structures that the native library reads, as ctypes has them: operations, and the frame that a pass works on.

The same as in `native/layout.h`; their sizes are compared when a library is loaded.
"""

import ctypes

KIND_NUMBERS = {"float32": 0, "bfloat16": 1, "q8": 2, "q4": 3}
LINEAR, NORM, ATTENTION = range(3)
NO_NORM, RMS_NORM, LAYER_NORM = range(3)
ACTIVATIONS = {"identity": 0, "relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4, "tanh": 5}

_int, _long, _float, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class NormFields(ctypes.Structure):
    """A norm: its kind, eps, γ and β."""

    _fields_ = (("kind", _int), ("epsilon", _float), ("gain", _pointer), ("shift", _pointer))


class OperationFields(ctypes.Structure):
    """One operation; which fields it reads depends on its kind."""

    _fields_ = (
        ("kind", _int), ("source", _int), ("target", _int), ("adds", _int),
        ("weights", _int), ("gated", _int), ("activation", _int), ("factor", _float),
        ("outputs", _long), ("inputs", _long), ("matrix", _pointer), ("bias", _pointer), ("norm", NormFields),
        ("heads", _int), ("kv_heads", _int), ("head_width", _int),
        ("past", _int), ("writes", _int), ("rotary", _int), ("biased", _int), ("from_source", _int),
        ("score_scale", _float), ("query_norm", NormFields), ("key_norm", NormFields),
    )  # fmt: skip


class BufferFields(ctypes.Structure):
    """Rows of numbers, and the distance from one to the next."""

    _fields_ = (("data", _pointer), ("stride", _long))


class PastFields(ctypes.Structure):
    """Keys and values of one layer, and the distances between rows, heads and positions."""

    _fields_ = (
        ("keys", _pointer), ("values", _pointer),
        ("row_stride", _long), ("head_stride", _long), ("position_stride", _long),
    )  # fmt: skip


class FrameFields(ctypes.Structure):
    """The buffers, pasts, places, rotary angles and score bias of a pass, and the pieces of texts read as a whole."""

    _fields_ = (
        ("buffers", _pointer), ("pasts", _pointer), ("places", _pointer), ("source_places", _pointer),
        ("cosines", _pointer), ("sines", _pointer),
        ("bias", _pointer), ("bias_length", _long), ("bias_center", _long),
        ("pieces", _pointer), ("piece_count", _long),
    )  # fmt: skip
