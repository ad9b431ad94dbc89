"""Every command that a message recommends, so that a test can run each of them on tiny models.

The reader fills in words in capitals, the message fills in names in braces. No other file writes a command into a
message.
"""

from enum import StrEnum


class Hint(StrEnum):
    """Commands that errors and cards advise; a test runs each of them."""

    ANSWER = "triform answer MODEL QUESTION --context FILE"
    CHAT = "triform chat MODEL"
    CHECK = "triform check MODEL"
    CLASSIFY = "triform classify MODEL TEXT"
    COMPLETE = "triform complete MODEL TEXT"
    COST = "triform cost MODEL"
    DATA = "triform data little-world --task TASK --out FILE"
    EMBED = "triform embed MODEL TEXT"
    EVAL = "triform eval MODEL DATA"
    EVAL_BASELINE = "triform eval MODEL DATA --baseline --train DATA"
    EXPORT = "triform export MODEL --out FOLDER"
    FAMILIES = "triform families"
    FILL = "triform fill MODEL TEXT"
    HELP = "triform --help"
    IMPORT = "triform import FILE --out FOLDER"
    INDEX = "triform index FILES --model MODEL --out {folder}"
    LECTURE = "triform lecture"
    LECTURE_CHAPTER = "triform lecture mask"
    LECTURE_QUIZ = "triform lecture --quiz"
    LINT = "triform lint DATA --task TASK"
    LOGS_ON = "triform logs --on"
    LOOK = "triform look MODEL TEXT"
    MEASURE = "triform cost --measure"
    MODELS = "triform models"
    PULL = "triform pull {name}"
    REMOVE = "triform rm MODEL"
    RERANK = "triform rerank MODEL QUERY --file FILE"
    RUN = "triform run MODEL TEXT"
    SEARCH = "triform search INDEX TEXT"
    SERVE = "triform serve MODEL"
    SHOW = "triform show MODEL"
    SUMMARIZE = "triform summarize MODEL TEXT"
    TAG = "triform tag MODEL TEXT"
    TRAIN = "triform train {task} DATA --out FOLDER"
    TRAIN_FROM = "triform train {task} DATA --from MODEL --out FOLDER"
    TRANSLATE = "triform translate MODEL TEXT"
    VERSION = "triform --version"
