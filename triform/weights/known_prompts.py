"""Prompts of embedding models whose folders do not register them, by the names under which they were released.

Their model cards ask for these prompts; without them, search finds less, and nothing warns.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class KnownPrompts(NamedTuple):
    """The names of the models, as a pattern, and what stands before queries and documents."""

    names: str
    query: str
    document: str


ENGLISH_BGE = "Represent this sentence for searching relevant passages: "
TABLE = (
    KnownPrompts(r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?", "query: ", "passage: "),
    KnownPrompts(
        r"e5-mistral-7b-instruct|multilingual-e5-large-instruct",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
        "",
    ),
    KnownPrompts(r"bge-(small|base|large)-en(-v1\.5)?|(UAE|uae)-(Large|large)-[Vv]1", ENGLISH_BGE, ""),
    KnownPrompts(r"bge-(small|base|large)-zh(-v1\.5)?", "为这个句子生成表示以用于检索相关文章：", ""),
    KnownPrompts(r"mxbai-embed-(large|xsmall)-v1|snowflake-arctic-embed-(xs|s|m|l)", ENGLISH_BGE, ""),
    KnownPrompts(r"nomic-embed-text-v1(\.5|-unsupervised)?", "search_query: ", "search_document: "),
    KnownPrompts(r"(ruri|Ruri)-(small|base|large)(-v2)?", "クエリ: ", "文章: "),
)


def find_prompts(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The prompts of the first of these names that is known; OWNER/NAME is known by its NAME."""
    for name in names:
        for known in TABLE:
            if re.fullmatch(known.names, re.split(r"/|--", name)[-1]):
                return (("query", known.query), ("document", known.document))
    return ()
