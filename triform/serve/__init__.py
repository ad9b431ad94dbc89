"""Every task over HTTP: OpenAI's routes and our own, batched, with limits everywhere, local by default; and the page.

An event loop (starlette on uvicorn) and one worker thread per model. Light to import: torch comes with the files.
"""

__all__ = ["client", "http", "mcp_server", "page_routes", "process", "routes", "running", "worker"]
