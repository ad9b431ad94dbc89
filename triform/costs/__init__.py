"""What a model costs: predicted from its spec, counted in a real pass, measured on this machine."""

__all__ = [
    "fit_memory",
    "flop_counter",
    "machine",
    "measure",
    "operations",
    "overview",
    "predict",
    "roofline",
    "scale_plan",
    "stack_rows",
    "time_growth",
    "workload",
]
