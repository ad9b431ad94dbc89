"""A network as programs of native operations: one call into the kernels per pass."""

__all__ = ["native_network"]
