"""Experiments on the parts of a decoder: √d, heads, norms, positions, the mask, the feed-forward, the residual."""

from contextlib import AbstractContextManager

import torch

from triform.core.batch import Text
from triform.core.forms import Form
from triform.lecture import slides, trained, untrained
from triform.lecture.experiments.trial import Trial, fresh, learn, spec, stacked, unseen, writing_loss
from triform.lecture.experiments.unmasked import copies
from triform.lecture.lesson import CONDITION, HOLDS, Evidence, Table, claim, lesson, numbers, table
from triform.lecture.plots import Lines, curve, lines
from triform.lecture.variants import joined_positions, mask_after_softmax, without_feedforward, without_residuals
from triform.observe.interventions import with_temperature
from triform.observe.view import look
from triform.spec import EmbeddingSpec, Learned, ModelSpec, NoPosition, Rotary, Sinusoid
from triform.weights.folder import Loaded

SCALED = EmbeddingSpec(scale=8.0)  # √64, as in 2017: unscaled, sines of size 1 would drown embeddings of size 0.02
GUESSING = 5.0  # about the loss of a model that has learned only which words are frequent


def loss_curves(title: str, trials: dict[str, Trial]) -> Lines:
    return lines(title, "step", "loss", [curve(name, each.steps, each.losses) for name, each in trials.items()])


def outcome(trials: dict[str, Trial]) -> Table:
    rows = [[name, f"{t.unseen:.3f}", f"{t.parameters:,}", t.why] for name, t in trials.items()]
    return table("Loss on unseen sentences", ["", "loss", "parameters", ""], rows)


def first_look(network: Form, made: ModelSpec) -> tuple[float, float]:
    """Before training: the mean entropy of all attention rows in nats, and the length of the gradient of q and k."""
    ids = [int(i) for i in trained.decoder().examples.at(trained.place(3)).ids]
    view = look(Loaded(made, network), ids)
    weights = torch.tensor(view.attention(0).values)[:, 1:].double().clamp_min(1e-30)
    network.zero_grad()
    network(Text.of(torch.tensor([ids])))[0, :, 5].sum().backward()
    grad = dict(network.named_parameters())["decoder.blocks.0.attention.f.qkv.weight"].grad
    size = 0.0 if grad is None else float(grad[: 2 * made.width].norm())
    network.zero_grad()
    return float(-(weights * weights.log()).sum(-1).mean()), size


@lesson(
    "sqrt-d",
    title="With and without √d",
    where=slides.ANATOMY,
    slide="The dot product is divided by √d for numerical stability.",
    kind="trained",
)
def sqrt_d() -> Evidence:
    """One head of width 64, once with scores divided by 8, once not. Undivided, attention begins sharper, and after the
    same number of steps the model knows less."""
    made = spec(heads=1)

    def undivided(network: Form) -> AbstractContextManager[None]:
        return with_temperature(network, made.stacks["decoder"].attention.score_scale)

    network = fresh(made)
    soft, slope = first_look(network, made)
    with undivided(network):
        sharp, steep = first_look(network, made)
    trials = {"divided by √64": learn(fresh(made)), "undivided": learn(fresh(made), setting=undivided)}
    return Evidence(
        claims=(
            claim(
                "undivided scores make attention sharper from the start",
                sharp < soft,
                f"entropy {sharp:.2f} against {soft:.2f} nats",
            ),
            claim(
                "without the division it does not learn as well",
                trials["undivided"].unseen > trials["divided by √64"].unseen + 0.1,
                f"loss {trials['undivided'].unseen:.2f} against {trials['divided by √64'].unseen:.2f}",
            ),
        ),
        tables=(
            outcome(trials),
            table(
                "Before training",
                ["", "entropy", "gradient of q and k"],
                [["divided", f"{soft:.3f}", f"{slope:.4f}"], ["undivided", f"{sharp:.3f}", f"{steep:.4f}"]],
            ),
        ),
        plots=(loss_curves("With and without √d", trials),),
    )


@lesson(
    "heads",
    title="One head against eight",
    where=slides.JHU,
    slide="Many heads at the cost of one let the model attend to several things at once.",
    kind="trained",
)
def heads() -> Evidence:
    """Equal width, equal FLOPs, equal parameters; eight heads of 8 against one of 64."""
    trials = {"1 head": learn(fresh(spec(heads=1))), "8 heads": learn(fresh(spec(heads=8)))}
    one, eight = trials.values()
    return Evidence(
        claims=(
            claim(
                "eight heads learn at least as well as one",
                eight.unseen < one.unseen + 0.05,
                f"loss {eight.unseen:.2f} against {one.unseen:.2f}",
            ),
        ),
        facts=(claim("equal parameters", one.parameters == eight.parameters, f"{one.parameters:,}"),),
        tables=(outcome(trials),),
        plots=(loss_curves("One head against eight", trials),),
    )


@lesson(
    "norms",
    title="Pre-norm against post-norm, by depth",
    where=slides.JHU,
    slide="Residual connections and layer norms make deep stacks trainable.",
    kind="trained",
)
def norms() -> Evidence:
    """The 2017 block puts the norm behind the sum (post), most of today's before the part (pre). Both learn, at two
    layers and at eight. It is often said that post-norm becomes hard to train with depth; in runs this short, with a
    warm-up and at most eight layers, we do not see that: the table says which is ahead."""
    trials = {}
    for depth in (2, 8):
        for at in ("pre", "post"):
            changed = stacked(spec(layers=depth), norm_at=at, final_norm=at == "pre")
            trials[f"{at}, {depth} layers"] = learn(fresh(changed))
    lead = {depth: trials[f"pre, {depth} layers"].unseen - trials[f"post, {depth} layers"].unseen for depth in (2, 8)}
    ahead = ", ".join(f"{depth} layers: {'post' if x > 0 else 'pre'} by {abs(x):.2f}" for depth, x in lead.items())
    return Evidence(
        claims=(
            claim(
                "with residuals and norms eight layers learn, wherever the norms stand",
                max(trial.unseen for trial in trials.values()) < GUESSING - 1.0,
                f"losses {numbers([trial.unseen for trial in trials.values()])}; ahead: {ahead}",
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("Pre-norm and post-norm", trials),),
    )


@lesson(
    "positions",
    title="Sinusoid, learned, rotary, none",
    where=slides.JHU,
    slide="Sine/cosine positions are a reasonable start; better schemes come later.",
    expects=HOLDS,
    kind="trained",
)
def positions() -> Evidence:
    """The same decoder with four ways to know where a token stands, its embeddings scaled by √d as in 2017. On
    sentences this short a decoder without any positions does as well as with them: its mask lets each token see one
    more than the token before, and that is order enough. Among the schemes, the later ones are ahead of the sines."""
    ways = {"sinusoid": Sinusoid(), "learned": Learned(), "rotary": Rotary(), "none": NoPosition()}
    trials = {name: learn(fresh(spec(position=way, embedding=SCALED))) for name, way in ways.items()}
    loss = {name: trial.unseen for name, trial in trials.items()}
    return Evidence(
        claims=(
            claim(
                "sine/cosine is a reasonable start",
                loss["sinusoid"] < min(loss.values()) + 0.3,
                f"loss {loss['sinusoid']:.2f}, the best is {min(loss.values()):.2f}",
            ),
            claim(
                "better schemes come later",
                min(loss["rotary"], loss["learned"]) < loss["sinusoid"],
                f"rotary {loss['rotary']:.2f}, learned {loss['learned']:.2f}",
            ),
        ),
        facts=(
            claim(
                "a decoder without positions is not blind",
                loss["none"] < loss["sinusoid"] + 0.2,
                f"{loss['none']:.2f}: the mask tells of order, too",
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("Four ways to know the place", trials),),
    )


@lesson(
    "positions-joined",
    title="Positions added, or concatenated and projected",
    where=slides.JHU,
    slide="Concatenate-and-project would be more general; in practice the sum works fine.",
    kind="trained",
)
def positions_joined() -> Evidence:
    """Sinusoids added, against sinusoids concatenated and projected by a trained matrix of 2d² numbers. Both learn. In
    this short run the more general way is ahead; the slide is right that it is more general, and that the sum works."""
    base = spec(position=Sinusoid(), embedding=SCALED)
    trials = {"added": learn(fresh(base)), "joined": learn(joined_positions(fresh(base), width=base.width))}
    added, joined = trials["added"], trials["joined"]
    return Evidence(
        claims=(
            claim(
                "the sum works fine",
                added.unseen < GUESSING - 1.0,
                f"loss {added.unseen:.2f}",
            ),
            claim(
                "concatenate-and-project is more general: it can do no worse",
                joined.unseen < added.unseen + 0.05,
                f"loss {joined.unseen:.2f}",
            ),
        ),
        facts=(
            claim(
                "joining has 2d² more parameters",
                joined.parameters - added.parameters == 2 * base.width**2,
                f"{joined.parameters - added.parameters:,}",
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("Added or joined", trials),),
    )


@lesson(
    "mask-after",
    title="The mask after the softmax",
    where=slides.JHU,
    slide="Masking after the softmax leaves unnormalised weights; the lecturer suspects it may just work.",
    expects=CONDITION,
    kind="trained",
)
def mask_after() -> Evidence:
    """Trained three ways. Divided by what is left, the run is that of the right mask, number for number. Not divided,
    the loss in training falls lower than an honest model's can: the weights it keeps are smaller when a masked score is
    large, and it learns to read the next word out of that. When it writes there is no next word to read, and it fails.
    So it does not just work; it cheats."""
    base = spec()
    networks = {
        "before": fresh(base),
        "after, divided": mask_after_softmax(fresh(base), divided=True),
        "after": mask_after_softmax(fresh(base), divided=False),
    }
    trials = {name: learn(network) for name, network in networks.items()}
    written = {name: writing_loss(network) for name, network in networks.items()}
    seen = {name: written[name] - whole_loss(network) for name, network in networks.items()}
    return Evidence(
        claims=(
            claim(
                "mask after softmax may just work",
                abs(trials["after, divided"].unseen - trials["before"].unseen) < 0.02,
                f"divided it is the same run; not divided it learns to a loss of {trials['after'].unseen:.2f} against "
                f"{trials['before'].unseen:.2f}, and writes with {written['after']:.2f} against "
                f"{written['before']:.2f}",
                only_if="the rest is divided by its sum",
                anyway=written["after"] < written["before"] + 0.2,
            ),
        ),
        facts=(
            claim(
                "divided, it is the mask before the softmax",
                abs(trials["after, divided"].unseen - trials["before"].unseen) < 0.02,
                f"{trials['after, divided'].unseen:.3f} and {trials['before'].unseen:.3f}",
            ),
            claim(
                "masked before: reading at once = writing",
                abs(seen["before"]) < 1e-3,
                f"differ by {abs(seen['before']):.4f}",
            ),
            claim(
                "masked after, undivided: they differ, the future shows",
                abs(seen["after"]) > 1e-3,
                f"differ by {seen['after']:+.3f}",
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("Where the mask stands", trials),),
    )


@torch.no_grad()
def whole_loss(network: Form, *, count: int = 25) -> float:
    """The same words as `writing_loss`, read at once behind the mask."""
    examples = unseen(count)
    total, targets = 0.0, 0
    for row in range(count):
        ids = list(examples.at(trained.place(row)).ids)
        logits = network(Text.of(torch.tensor([ids[:-1]])))[0].log_softmax(-1)
        total -= float(logits[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].sum())
        targets += len(ids) - 1
    return total / targets


@lesson(
    "no-mask",
    title="No mask",
    where=slides.JHU,
    slide="Without a mask the model copies the next token.",
    kind="trained",
)
def no_mask() -> Evidence:
    """The lesson 4.8 of the chapter on training, with its curves."""
    found = copies()
    return Evidence(
        claims=(
            claim(
                "the unmasked model reads its answers",
                found.open_loss[-1] < 0.3 * found.masked_loss[-1],
                f"training loss {found.open_loss[-1]:.2f} against {found.masked_loss[-1]:.2f}",
            ),
        ),
        facts=(
            claim(
                "and cannot write",
                found.open_writing > found.masked_writing + 1,
                f"{found.open_writing:.2f} against {found.masked_writing:.2f}",
            ),
        ),
        plots=(
            lines(
                "Loss in training",
                "step",
                "loss",
                [curve("masked", found.steps, found.masked_loss), curve("no mask", found.steps, found.open_loss)],
            ),
        ),
    )


@lesson(
    "no-ffn",
    title="Without feed-forward networks",
    where=slides.JHU,
    slide="A feed-forward network adds expressivity: another nonlinearity after attention.",
    expects=CONDITION,
    kind="trained",
)
def no_ffn() -> Evidence:
    """Two layers as they are; two layers without feed-forwards; and six layers without, which have as many parameters
    in all. In so short a run on so small a world two layers of attention alone do as well; but as a use of parameters
    the feed-forward is better than more attention. What it adds is a bend: to a single token attention is a straight
    map, the feed-forward is not."""
    trials = {
        "with": learn(fresh(spec())),
        "without, 2 layers": learn(without_feedforward(fresh(spec()))),
        "without, 6 layers": learn(without_feedforward(fresh(spec(layers=6)))),
    }
    straight = {part: straight_line(part) for part in ("attention", "feedforward")}
    whole, less, deeper = (trial.unseen for trial in trials.values())
    return Evidence(
        claims=(
            claim(
                "it adds a nonlinearity",
                straight["attention"] and not straight["feedforward"],
                "f(x + y) = f(x) + f(y) − f(0) for one token: attention yes, feed-forward no",
            ),
            claim(
                "and so makes the model better",
                whole < deeper,
                f"loss {whole:.2f} with, {deeper:.2f} without at equal parameters, {less:.2f} without and smaller",
                only_if="parameters are equal",
                anyway=whole < less - 0.1,
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("With and without feed-forward networks", trials),),
    )


@torch.no_grad()
def straight_line(part: str) -> bool:
    """Whether the part is a straight map of the vector of a single token."""
    network = untrained.decoder().network
    path = f"decoder.blocks.0.{part}.f"
    _, flow = look(untrained.decoder(), [3]).record.call(path).inputs
    layer = network.get_submodule(path)
    x, y = untrained.random(1, 1, 32, seed=1), untrained.random(1, 1, 32, seed=2)
    return untrained.same(layer(x + y, flow), layer(x, flow) + layer(y, flow) - layer(torch.zeros_like(x), flow))


@lesson(
    "no-residual",
    title="Without residual connections",
    where=slides.JHU,
    slide="Residual connections let gradients skip layers; they are what makes deep networks trainable.",
    kind="trained",
)
def no_residual() -> Evidence:
    """Six layers with the x + and without it. Without it the stack learns which words are frequent, and little more."""
    trials = {"with": learn(fresh(spec(layers=6))), "without": learn(without_residuals(fresh(spec(layers=6))))}
    return Evidence(
        claims=(
            claim(
                "without residuals six layers hardly learn",
                trials["without"].unseen > trials["with"].unseen + 0.7,
                f"loss {trials['without'].unseen:.2f} against {trials['with'].unseen:.2f}",
            ),
        ),
        tables=(outcome(trials),),
        plots=(loss_curves("With and without residuals", trials),),
    )
