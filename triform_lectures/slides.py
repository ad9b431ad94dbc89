"""What is printed on the slides, as data: numbers with the digits they are printed with, and example sentences.

Copied, not corrected: mistakes are copied, too. A cell that is lost in the text of the slide is None.
"""

# The five lectures, by the names of their files.
ANATOMY = "000_ec26e761f77408b8.txt"
LECTURE_10 = "001_b793d83f49cd938d.txt"
HUFS = "002_2f4aa258078f1160.txt"
QUIZZES = "003_11acd837ad2c34e2.txt"
JHU = "004_4b2440409cd51ebe.txt"

LECTURES = {
    ANATOMY: "Transformer Anatomy (EuroCC Austria)",
    LECTURE_10: "Lecture 10, Transformer",
    HUFS: "Attention and Transformers (Hankuk University)",
    QUIZZES: "Attention Mechanism and Transformers, with quizzes",
    JHU: "Self-Attention and Transformers (Johns Hopkins)",
}

# --- Transformer Anatomy --------------------------------------------------------------------------------------------

SHARE_OF_ATTENTION = 1 / 3
EMBEDDING_WIDTH, QUERY_WIDTH = 12_000, 128

MOLES = ("The European mole is a mammal", "Take a biopsy of the mole", "One mole of carbon dioxide")

CAT = ("the", "fat", "ginger", "cat", "sat", "on", "a", "mat")
# Column = the word whose vector is updated, row = the word whose value is taken.
CAT_WEIGHTS = (
    ("1.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0"),
    ("0.0", "1.0", "0.0", "0.42", "0.0", "0.0", "0.0", "0.0"),
    ("0.0", "0.0", "1.0", "0.58", "0.0", "0.0", "0.0", "0.0"),
    ("0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0"),
    ("0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0"),
    ("0.0", "0.0", "0.0", "0.0", "0.99", "1.0", "0.0", "0.0"),
    ("0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "1.0", "1.0"),
    ("0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0"),
)
MASKED_CORNER = "lower left"

# --- Attention and Transformers -------------------------------------------------------------------------------------

VECTORS = {
    "Orange": (0.0, 3.0, 0.0),
    "Phone": (4.0, 0.0, 0.0),
    "Apple": (2.0, 2.0, 0.0),
    "And": (0.0, 0.0, 2.0),
    "An": (0.0, 0.0, 3.0),
}
COSINES = {
    "Orange": ("1", "0", "0.71", "0", "0"),
    "Phone": ("0", "1", "0.71", "0", "0"),
    "Apple": ("0.71", "0.71", "1", "0", "0"),
    "And": ("0", "0", "0", "1", "1"),
    "An": ("0", "0", "0", "1", "1"),
}
FRUIT = ("Orange", "Apple", "And", "An")  # "an apple and an orange"
FRUIT_COSINES = (("1", "0.71", "0", "0"), ("0.71", "1", "0", "0"), ("0", "0", "1", "1"), ("0", "0", "1", "1"))
PHONE = ("Phone", "Apple", "An")  # "an apple phone"
PHONE_COSINES = (("1", "0.71", "0"), ("0.71", "1", "0"), ("0", "0", "1"))
LINEAR = ("0.57", "0.43")  # "Scaling": Orange → 0.57 Orange + 0.43 Apple
SOFTMAX = ("0.4", "0.3", "0.15", "0.15")  # Orange → 0.4 Orange + 0.3 Apple + 0.15 And + 0.15 An
MIXING = (
    ("0.4", "0.3", "0.15", "0.15"),
    ("0.3", "0.4", "0.15", "0.15"),
    ("0.15", "0.15", "0.5", "0.5"),
    ("0.15", "0.15", "0.5", "0.5"),
)
WISH = "I want to buy a"
WISHES = ("car", "apple", "phone")

# --- the quizzes ----------------------------------------------------------------------------------------------------

HEADS, HEAD_WIDTH, CONCATENATED = 8, 64, 512

# --- Johns Hopkins --------------------------------------------------------------------------------------------------

_: None = None  # a cell that the text of the slide has lost
RAW_SCORES: tuple[tuple[float | None, ...], ...] = (
    (-0.08, 1.24, 0.69, -0.98, 1.43, -0.6, 0.7, 0.16, 0.93, 1.28, _, -1.1),
    (-0.09, -0.0, -0.7, 0.06, 0.25, 0.23, 0.26, 0.18, 0.78, -0.21, -1.01, 1.01),
    (0.86, 1.19, 1.59, 0.86, -0.13, -0.15, _, -0.98, -0.87, _, 1.87, -0.72),
    (0.12, -0.03, -0.02, 0.88, -0.46, -0.7, 0.54, -0.42, _, -0.38, 0.04, -0.84),
    (0.51, 0.17, 0.13, _, 0.24, -0.02, 1.68, -0.36, 0.64, 0.36, 0.27, 0.66),
    (0.24, _, 0.43, 0.74, _, _, _, 0.31, 1.54, 1.66, 1.14, 0.58),
    (0.26, -0.1, 0.93, 0.72, -0.38, 1.65, 0.47, -0.96, -0.17, -0.9, _, 0.22),
    (-0.55, 0.81, 0.71, 1.7, -0.8, -1.14, -0.32, 1.78, -0.7, -0.04, 1.54, 0.81),
    (0.74, -0.76, -0.44, -0.08, _, -0.13, 1.25, _, 1.84, 0.3, 0.57, 0.74),
    (-0.97, -0.91, 0.15, 0.35, -0.81, 0.11, 1.14, _, 1.06, 1.87, 0.5, -0.3),
    (1.56, 0.9, 0.39, 1.46, 1.44, -1.05, 0.9, -0.73, 0.36, -0.67, -0.62, -0.43),
    (0.32, 0.74, 0.44, -0.1, 1.19, 0.83, 0.29, 2.06, 0.51, -0.26, 1.51, 0.11),
)
# Cells of the probability table whose digits can still be read.
PROBABILITIES: dict[int, tuple[str | None, ...]] = {
    6: (_, _, _, _, _, _, "0.11", "0.0", "0.0", "0.0", "0.0", "0.0"),
    7: (_, _, "0.11", _, _, _, "0.04", _, "0.0", "0.0", "0.0", "0.0"),
    8: ("0.14", "0.03", "0.04", "0.06", "0.02", "0.06", _, "0.02", _, "0.0", "0.0", "0.0"),
    9: ("0.02", "0.02", "0.07", "0.08", "0.03", "0.06", _, "0.01", _, _, "0.0", "0.0"),
    10: (_, "0.11", "0.06", _, _, "0.02", "0.11", "0.02", "0.06", "0.02", "0.02", "0.0"),
    11: ("0.05", "0.07", "0.05", "0.03", "0.11", "0.08", "0.05", _, "0.06", "0.03", _, "0.04"),
}
QUERY_3_SEES = (0, 1, 2, 3)
MAT = ("the", "cat", "sat", "on", "the", "mat", "</s>")
GRAY_CAT, SAT = ("the", "gray", "chunky", "cat"), ("<bos>", "sat", "on", "the", "mat", "<eos>")
LOGITS = (0.19850038, 0.7089803, 0.46333563)  # under "output token probabilities (logits)"
OPTIMISED = (2, 6, 7, 5)
CACHE_ANSWER = "2ndL"
FEEDFORWARD_WIDTHS = (2, 8)  # d_ff is so many times d
CROSSOVER_IN_WIDTHS = 1  # "if n > d, the n² part dominates"
WALK = ("The", "cat", "sat", "on")
SHARES = ("50%", "30%")
