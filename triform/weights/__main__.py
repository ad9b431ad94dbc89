"""`python -m triform.weights bert` prints the name table of a family, at a tiny size."""

import sys

from triform.families import FAMILIES, sized
from triform.weights.architectures import choose_architecture


def main() -> None:
    """Prints the name table of a family at a tiny size."""
    for name in sys.argv[1:] or FAMILIES:
        spec = sized(name, "tiny", vocab=100)
        family, architecture = choose_architecture(spec, {}).architecture
        print(f"\n{name}: {family.model_type}, {architecture}\n")
        for part in family.make_table(architecture, bare=False).parts(spec):
            turned = " (turned)" if part.turned else ""
            print(f"  {part.path}[{part.first}:{part.last}] = {part.name} {list(part.shape)}{turned}")


if __name__ == "__main__":
    main()
