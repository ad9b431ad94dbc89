"""Every task over HTTP: OpenAI's routes and our own, batched, bounded, closed by default; and the page.

An event loop (starlette on uvicorn) beside one worker thread a model. Light to import: torch comes with the files.
"""
