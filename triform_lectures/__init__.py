"""The five lectures as programs: every number, mistake, quiz and experiment on the slides, computed and checked."""

from triform.extensions import Extension

EXTENSION = Extension(
    commands={
        "data": ("triform_lectures.data_command:data", "Write a synthetic data set (the little world) for any task."),
        "demo": ("triform_lectures.demo_command:demo", "Train one small model of each form, and show what it can do."),
        "lecture": (
            "triform_lectures.lecture_command:lecture",
            "Run the lectures: their numbers, mistakes, quizzes and experiments.",
        ),
    },
    lessons="triform_lectures.page_lessons",
)
