"""Files on disk: read inside one folder and within bounds, written whole or not at all, by one process at a time."""

__all__ = [
    "atomic_file",
    "atomic_folder",
    "errors",
    "format_version",
    "history",
    "locks",
    "manifest",
    "replace_folder",
    "safe_folder",
    "safetensors_data",
    "safetensors_header",
    "stable_read",
    "strict_json",
]
