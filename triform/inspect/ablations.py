"""Changes whose values come from runs: mean- and resample-ablation, steering vectors, path patching.

ablate_with_mean(model, "L3H2", texts)         its mean over other texts, at every token
ablate_with_resample(model, "L3H2", texts)     what it gave, position by position, for another text
steering_vector(model, "L6", ["I love it"], ["I hate it"])
patch_path(clean, source, sender="L5H1", receiver="L9H3.q")
"""

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from triform.errors import InputError
from triform.inspect.activations import Pooled, collect_activations
from triform.inspect.changes import ReplaceOutput, apply_changes, patch
from triform.inspect.locations import Location, locate
from triform.inspect.token_labels import TextOrIds
from triform.inspect.view import View, look
from triform.model import Model


def ablate_with_mean(
    model: Model, where: str | Location, texts: Sequence[TextOrIds], *, targets: Sequence[TextOrIds] | None = None
) -> ReplaceOutput:
    """The vector at the location is its mean over all tokens of other texts."""
    location = locate(model.network, where)
    found = collect_activations(model, texts, without_positions(location), position="all", targets=targets)
    return ReplaceOutput(location, torch.from_numpy(found.values.mean(0)))


def ablate_with_resample(
    model: Model,
    where: str | Location,
    texts: Sequence[TextOrIds],
    *,
    seed: int = 0,
    targets: Sequence[TextOrIds] | None = None,
) -> ReplaceOutput:
    """The vector of position p is that of position p of a text drawn from those that are long enough."""
    location = locate(model.network, where)
    found = collect_activations(model, texts, without_positions(location), position="all", targets=targets)
    rows = [torch.from_numpy(found.of(i).copy()) for i in range(found.texts)]
    dice, longest = Random(seed), max(map(len, rows))
    drawn = torch.stack([dice.choice([row for row in rows if len(row) > at])[at] for at in range(longest)])
    if location.positions is None:
        return ReplaceOutput(location, drawn, exact=False)
    if wrong := [at for at in location.positions if not 0 <= at < longest]:
        raise InputError(f"position {wrong[0]} is in none of these texts; their positions are 0 to {longest - 1}")
    return ReplaceOutput(location, drawn[list(location.positions)])


def steering_vector(
    model: Model,
    where: str | Location,
    toward: Sequence[TextOrIds],
    away: Sequence[TextOrIds],
    *,
    position: Pooled = -1,
    targets: tuple[Sequence[TextOrIds], Sequence[TextOrIds]] | None = None,
) -> Tensor:
    """mean(toward) − mean(away) of the activations at the location, [W]; add it with `AddVector`."""
    if position == "all" or not toward or not away:
        raise InputError("a steering vector needs at least one text for each direction, and one position or 'mean'")
    plus, minus = (
        collect_activations(model, texts, where, position=position, targets=goals).values.mean(0)
        for texts, goals in zip((toward, away), targets or (None, None), strict=True)
    )
    return torch.from_numpy(plus - minus)


def without_positions(location: Location) -> Location:
    return Location(location.path, location.head, None, location.part)


# --- path patching --------------------------------------------------------------------------------------------------


def patch_path(
    model: Model, clean: View, source: View, *, sender: str | Location, receiver: str | Location
) -> ReplaceOutput:
    """What the receiver gets when the sender, as in the source run, is heard by it directly: every sublayer between
    the two stays as in the clean run. Both runs have equally many tokens."""
    network = model.network
    sender, receiver = locate(network, sender), locate(network, receiver)
    frozen = [patch(clean, path) for path in sublayers_between(clean, sender, receiver)]
    with apply_changes(network, [patch(source, sender), *frozen]):
        heard = look_again(model, clean)
    return patch(heard, receiver)


def sublayers_between(view: View, sender: Location, receiver: Location) -> list[str]:
    """What else adds to the stream after the sender and before the receiver, in the order of a pass."""
    paths = list(view.record.calls)
    first, last = (run_order(paths, location) for location in (sender, receiver))
    if first >= last:
        raise InputError(f"{receiver} does not run after {sender}; a path goes from an earlier to a later location")
    own = [sublayer_of(location) for location in (sender, receiver)]
    return [path for path in paths[first:last] if path.endswith(".drop") and sublayer_of(Location(path)) not in own]


def run_order(paths: list[str], location: Location) -> int:
    if location.path not in paths:
        raise InputError(f"{location.path} did not run in this view")
    return paths.index(location.path)


def sublayer_of(location: Location) -> str:
    return ".".join(location.path.split(".")[:4])


def look_again(model: Model, view: View) -> View:
    """The same ids once more, with the changes that are applied now."""
    texts = list(view.texts.values())
    return look(model, texts[0].ids, texts[1].ids if len(texts) > 1 else None)
