"""The page: what a reader asks of a model (`ask`), the answers (`answers`), and one file with all of it (`file`).

What is shown is plain HTML, CSS and ES modules in `static/`. Refuses to know HTTP: that is `serve`.
"""
