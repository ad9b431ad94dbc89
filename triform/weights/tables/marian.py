"""Marian: BART's names, without norms on the embeddings; its sinusoids are computed, not read from the file."""

from triform import families
from triform.files.errors import FileError, show_value
from triform.spec import ModelSpec
from triform.weights.config_fields import Config, Tree
from triform.weights.family_table import NO_HEAD
from triform.weights.name_rules import ignore
from triform.weights.tables import bart


def derive(tree: Tree, config: Config) -> None:
    """BART's derivation; refuses two vocabularies."""
    bart.derive(tree, config)
    if config.get("decoder_vocab_size", tree["vocab"]) != tree["vocab"]:
        raise FileError(
            f"config.json: decoder_vocab_size is {show_value(config['decoder_vocab_size'])}, "
            f"vocab_size {tree['vocab']}; only models with one vocabulary for both sides are supported"
        )


def more(spec: ModelSpec) -> Config:
    return bart.more(spec) | {"decoder_vocab_size": spec.vocab}


MARIAN = bart.BART._replace(
    model_type="marian",
    template=families.marian(),
    defaults=bart.BART.defaults | {"vocab_size": 58_101},
    fixed=bart.FIXED
    | {"normalize_embedding": False, "static_position_embeddings": True, "share_encoder_decoder_embeddings": True},
    names=(*bart.BART.names, ignore("model.{encoder,decoder}.embed_positions.weight")),
    heads={"MarianMTModel": bart.LANGUAGE_HEAD, "MarianModel": NO_HEAD},
    derive=derive,
    more=more,
)
