"""Coverage-guided fuzzing of one kind of file in a model folder: `python hostile_files.py KIND FOLDER -runs=20000`.

Anything but our own error, an answer, or a second and a half gigabyte, is a crash.
"""

import contextlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["triform"]):
    from triform.errors import TriformError
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer
    from triform.weights.gguf_file import GgufFile
    from triform.weights.verify_folder import describe_folder

FILES = {
    "config": "config.json",
    "header": "model.safetensors",
    "index": "model.safetensors.index.json",
    "tokenizer": "tokenizer.json",
    "template": "chat_template.jinja",
    "gguf": "model.gguf",
}


def main() -> None:
    kind, root = sys.argv.pop(1), Path(sys.argv.pop(1))
    file = root / FILES[kind]
    whole = file.read_bytes() if kind == "header" else b""

    def once(data: bytes) -> None:
        # The header is what stands before the numbers; they stay as they are.
        file.write_bytes(len(data).to_bytes(8, "little") + data + whole[-4096:] if kind == "header" else data)
        with contextlib.suppress(TriformError):
            if kind == "tokenizer":
                Tokenizer.read(root).encode("the fat ginger cat")
            elif kind == "gguf":
                GgufFile.open(file).check_tensors()
            elif kind == "template":
                ChatTemplate(data.decode(errors="replace"), special={}).render([{"role": "user", "content": "a"}])
            else:
                describe_folder(root)

    atheris.Setup([sys.argv[0], "-timeout=5", "-rss_limit_mb=2048", *sys.argv[1:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
