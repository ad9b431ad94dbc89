"""Several processes that compute one thing: which of them this is, what they tell each other, and when one is lost.

Refuses to know what is trained or evaluated.
"""

__all__ = ["join_team", "launch", "ordered_sum", "rank", "shared_evaluation", "team", "traffic"]
