"""The page: its requests to a model, the answers, and an export of both to one HTML file; knows no HTTP.

Plain HTML, CSS and ES modules in `static/` draw it.
"""

__all__ = ["answer_requests", "export_html", "notebook", "requests", "rounding", "session"]
