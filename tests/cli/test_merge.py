"""Answers of shards, merged, are those of the whole, byte for byte; what does not belong together is refused."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from triform.cli import task_io
from triform.cli.merge import merge
from triform.cli.run_identity import ModelRun
from triform.cli.shards import Shard, note_path, parse_shard
from triform.cli.task_io import CommandInput, answer_input
from triform.errors import InputError, TriformError
from triform.tasks.task import Reply

ROWS = [b"one", b"two", b"", b"\xff", b"refused", b"six, and more", b'"seven"', b"acht", b"neun"]


class Shouted(Reply, frozen=True):
    text: str

    def __str__(self) -> str:
        return self.text


def shout(texts: Sequence[str]) -> Iterator[Shouted]:
    for text in texts:
        if text == "refused":
            raise InputError("this text is refused")
        yield Shouted(text=text.upper())


def answer(file: Path, out: Path, *, run: task_io.Run = shout, model: str = "shouts", **asked: object) -> Path:
    ask = CommandInput(file=str(file), out=str(out), **asked)  # type: ignore[arg-type]
    answer_input(ask, ModelRun(run, identify=lambda: {"model": model}), about={})
    return out


def merged(out: Path, *shards: Path) -> bytes:
    result = CliRunner().invoke(merge, [str(out), *map(str, shards)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out.read_bytes()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.txt"
    path.write_bytes(b"\n".join(ROWS) + b"\n")
    return path


def make_shards(rows: Path, count: int, ending: str) -> list[Path]:
    return [
        answer(rows, rows.with_name(f"part{number}{ending}"), shard=Shard(number, count)) for number in range(count)
    ]


@pytest.mark.parametrize(
    ("ending", "counts"), [(".txt", (1, 3, 7, 20)), (".jsonl", (1, 3, 7, 20)), (".csv", (1, 3)), (".tsv", (1, 2))]
)
def test_merged_shards_are_the_whole(rows: Path, ending: str, counts: tuple[int, ...]) -> None:
    whole = answer(rows, rows.with_name(f"whole{ending}")).read_bytes()
    for count in counts:
        parts = make_shards(rows, count, ending)
        out = rows.with_name(f"merged{ending}")
        assert merged(out, *reversed(parts)) == whole
        for path in (out, *parts):
            path.unlink()


def test_a_table_without_an_answer_has_no_columns(rows: Path) -> None:
    with pytest.raises(InputError, match="blank"):
        answer(rows, rows.with_name("part.csv"), shard=Shard(2, 9))


def test_a_shard_that_was_stopped_goes_on(rows: Path) -> None:
    def stop(texts: Sequence[str]) -> Iterator[Shouted]:
        yield from shout(texts[:2])
        raise KeyboardInterrupt

    whole = answer(rows, rows.with_name("whole.jsonl")).read_bytes()
    first, last = Shard(0, 2), Shard(1, 2)
    parts = [rows.with_name("part0.jsonl"), answer(rows, rows.with_name("part1.jsonl"), shard=last)]
    with pytest.raises(KeyboardInterrupt):
        answer(rows, parts[0], run=stop, shard=first)
    with pytest.raises(TriformError, match="finish it with --resume"):
        merged(rows.with_name("merged.jsonl"), *parts)
    with pytest.raises(TriformError, match="is of another run: shard was"):
        answer(rows, parts[0], shard=last, resume=True)
    answer(rows, parts[0], shard=first, resume=True)
    assert merged(rows.with_name("merged.jsonl"), *parts) == whole


def test_what_does_not_belong_together_is_refused(rows: Path) -> None:
    out = rows.with_name("merged.jsonl")
    parts = make_shards(rows, 3, ".jsonl")
    other = answer(rows, rows.with_name("other.jsonl"), shard=Shard(1, 3), model="whispers")
    half = answer(rows, rows.with_name("half.jsonl"), shard=Shard(1, 2))
    stranger = rows.with_name("stranger.jsonl")
    stranger.write_text("{}\n")
    again = rows.with_name("again.jsonl")
    again.write_bytes(parts[2].read_bytes())
    note_path(again).write_bytes(note_path(parts[2]).read_bytes())
    for wrong, message in (
        (parts[:2], "shard 2/3 is missing"),
        ([parts[0], other, parts[2]], "different runs: model is 'shouts' and 'whispers'"),
        ([parts[0], half], "is shard 0/3, .* is 1/2"),
        ([*parts, again], "are both shard 2/3"),
        ([stranger], "is no shard"),
        ([rows.with_name("absent.jsonl")], "no such file"),
    ):
        with pytest.raises(TriformError, match=message):
            merged(out, *wrong)
        assert not out.exists()
    with pytest.raises(TriformError, match="different endings"):
        merged(out.with_suffix(".txt"), *parts)
    merged(out, *parts)
    with pytest.raises(TriformError, match="already there"):
        merged(out, *parts)


def copy_rows(rows: Path, folder: str, *, change: bool = False) -> Path:
    """The same rows under another path, or as many other bytes under the same name."""
    (rows.parent / folder).mkdir()
    path = rows.parent / folder / ("rows.txt" if change else "lines.txt")
    path.write_bytes(rows.read_bytes().replace(b"one", b"uno") if change else rows.read_bytes())
    return path


def test_an_input_is_known_by_its_content(rows: Path) -> None:
    whole = answer(rows, rows.with_name("whole.jsonl")).read_bytes()
    first = answer(rows, rows.with_name("part0.jsonl"), shard=Shard(0, 2))
    same, other = copy_rows(rows, "second_machine"), copy_rows(rows, "third_machine", change=True)
    moved = answer(same, same.with_name("part1.jsonl"), shard=Shard(1, 2))
    assert merged(rows.with_name("merged.jsonl"), first, moved) == whole
    wrong = answer(other, other.with_name("part1.jsonl"), shard=Shard(1, 2))
    with pytest.raises(TriformError, match=r"different runs: input is [0-9a-f]{12}… and [0-9a-f]{12}…$"):
        merged(rows.with_name("mixed.jsonl"), first, wrong)


def test_a_run_resumes_with_the_same_content_alone(rows: Path) -> None:
    def stop(texts: Sequence[str]) -> Iterator[Shouted]:
        raise KeyboardInterrupt

    out = rows.with_name("out.jsonl")
    with pytest.raises(KeyboardInterrupt):
        answer(rows, out, run=stop)
    with pytest.raises(TriformError, match="is of another run: input was"):
        answer(copy_rows(rows, "changed", change=True), out, resume=True)
    with pytest.raises(TriformError, match="is of another run: model was 'shouts', is 'whispers'"):
        answer(rows, out, model="whispers", resume=True)
    assert answer(copy_rows(rows, "moved"), out, resume=True).exists()


def test_a_shard_needs_a_file(rows: Path) -> None:
    with pytest.raises(TriformError, match="--shard"):
        answer_input(CommandInput(texts=("one",), shard=Shard(0, 2)), shout, about={})


@pytest.mark.parametrize("wrong", ["", "1", "1/0", "2/2", "-1/2", "a/b", "1/2/3"])
def test_shards_that_cannot_be_are_refused(wrong: str) -> None:
    with pytest.raises(TriformError, match="--shard"):
        parse_shard(None, None, wrong)


def test_shards_take_every_row_once() -> None:
    for count in (1, 3, 7):
        shards = [Shard(number, count) for number in range(count)]
        assert sorted(row for shard in shards for row in shard.take(range(10))) == [*range(10)]
        assert [shard.count_rows(10) for shard in shards] == [len([*shard.take(range(10))]) for shard in shards]
