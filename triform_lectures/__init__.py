"""The five lectures as runs: every number, mistake, quiz and experiment on the slides, computed now and checked."""

from triform.extensions import Extension

EXTENSION = Extension(
    commands={
        "data": ("triform_lectures.data_command:data", "Write rows of the little world, in each task's format."),
        "demo": ("triform_lectures.demo_command:demo", "A first walk through all three forms."),
        "lecture": (
            "triform_lectures.command:lecture",
            "Run the lectures: every number, mistake, quiz and experiment.",
        ),
    },
    lessons="triform_lectures.page_lessons",
)
