"""Contenders that write text: ours, transformers, CTranslate2, llama.cpp. Each reads the same model in its own format.

All write greedily (or with beams), never end at eos, and keep the log-probabilities of the next token after a few fixed
prompts, so that the bench can say how far each is from the float32 model.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
PROMPTS = 4  # whose next token everyone gives log-probabilities for
Run = Callable[[], Any]


def prompts(count: int, length: int, *, vocab: int = 30_000, seed: int = 0) -> list[list[int]]:
    """Ids above 300: below are control tokens and bytes in some formats."""
    chance = random.Random(seed)
    return [[chance.randrange(300, vocab) for _ in range(length)] for _ in range(count)]


def keep(to: str | None, rows: Callable[[list[int]], Sequence[float]]) -> None:
    """Log-probabilities [prompts, vocabulary] on disk, where they are asked for."""
    if to is not None:
        import numpy as np

        np.save(to, np.array([rows(ids) for ids in prompts(PROMPTS, 24, seed=1)], dtype=np.float32))


# --- ours -----------------------------------------------------------------------------------------------------------


def _ours(folder: str, weights: str = "float32") -> Any:
    import torch

    import triform

    torch.set_num_threads(THREADS)
    return triform.load(folder, weights=weights)


def ours(
    folder: str, rows: int, prompt: int, new: int, to: str | None = None, weights: str = "float32", **more: Any
) -> Run:
    model = _ours(folder, weights)
    if to is not None:
        keep(to, lambda ids: model.logits([ids])[0, -1].log_softmax(-1).tolist())
    asked = prompts(rows, prompt)

    def run() -> int:
        answers = model.complete(asked, max_tokens=new, temperature=0.0, ignore_eos=True, **more)
        return sum(len(answer.tokens) for answer in answers)

    return run


def ours_after_past(folder: str, past: int, new: int, weights: str) -> Run:
    """One text that is `past` tokens long before it is measured; each run writes `new` more."""
    from triform.generate.api import make_engine
    from triform.generate.settings import Request, make_settings

    model = _ours(folder, weights)
    engine = make_engine(model, rows=1, prefix_bytes=0)
    most = model.spec.context - past
    chosen = make_settings({"max_tokens": most, "temperature": 0.0, "ignore_eos": True}, None, known={})
    engine.add(Request(prompt=tuple(prompts(1, past)[0]), settings=chosen))
    while not engine.running:
        engine.step()
    return lambda: sum(len(engine.step()) for _ in range(new))


def ours_growth(tokens: int) -> Run:
    """A small decoder with a long context."""
    import torch

    import triform

    torch.set_num_threads(THREADS)
    spec = triform.families.llama(width=256, layers=4, heads=4, vocab=4096, context=8192, tied=True)
    model = triform.build(spec)

    def run() -> int:
        (answer,) = model.complete([[1, 2, 3]], max_tokens=tokens, temperature=0.0, ignore_eos=True)
        return len(answer.tokens)

    return run


def ours_arriving(folder: str, rows: int, requests: int, new: int, within: float) -> Run:
    """Requests that arrive at random within so many seconds, through one engine: seconds until the last is answered."""
    from triform.generate.api import make_engine
    from triform.generate.settings import Request, make_settings

    model, chance = _ours(folder), random.Random(2)
    engine = make_engine(model, rows=rows, prefix_bytes=0)
    chosen = make_settings({"max_tokens": new, "temperature": 0.0, "ignore_eos": True}, None, known={})
    asked = [
        Request(prompt=tuple(prompts(1, chance.randrange(8, 64), seed=at)[0]), settings=chosen)
        for at in range(requests)
    ]
    arrivals = sorted(chance.uniform(0, within) for _ in asked)

    def run() -> int:
        began, tokens, at = time.perf_counter(), 0, 0
        while at < requests or engine.busy:
            while at < requests and arrivals[at] <= time.perf_counter() - began:
                engine.add(asked[at])
                at += 1
            if engine.busy:
                tokens += len(engine.step())
            else:
                time.sleep(0.001)
        return tokens

    return run


# --- transformers ---------------------------------------------------------------------------------------------------


def transformers(folder: str, rows: int, prompt: int, new: int, to: str | None = None, beams: int = 1) -> Run:
    import torch
    import transformers as hf

    torch.set_num_threads(THREADS)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    pair = hf.AutoConfig.from_pretrained(folder).is_encoder_decoder
    kind = hf.AutoModelForSeq2SeqLM if pair else hf.AutoModelForCausalLM
    model = kind.from_pretrained(folder).eval()
    model.generation_config.eos_token_id = None
    if to is not None:
        with torch.inference_mode():
            keep(to, lambda ids: model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).tolist())
    ids = torch.tensor(prompts(rows, prompt))
    how = {"max_new_tokens": new, "do_sample": False, "num_beams": beams, "pad_token_id": 0}

    @torch.inference_mode()
    def run() -> int:
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
        return out.shape[0] * (out.shape[1] - (1 if pair else ids.shape[1]))

    return run


# --- CTranslate2 ----------------------------------------------------------------------------------------------------


def ctranslate2(folder: str, rows: int, prompt: int, new: int, to: str | None = None) -> Run:
    import ctranslate2 as ct2
    import numpy as np

    kind = "int8" if folder.endswith("int8") else "float32"
    generator = ct2.Generator(folder, device="cpu", compute_type=kind, intra_threads=THREADS, inter_threads=1)

    def logprobs(ids: list[int]) -> Sequence[float]:
        out = np.array(generator.forward_batch([words(ids)], return_log_probs=True).to_device(ct2.Device.cpu))
        return out[0, -1].tolist()

    keep(to, logprobs)
    asked = [words(ids) for ids in prompts(rows, prompt)]

    def run() -> int:
        out = generator.generate_batch(
            asked, max_length=new, min_length=new, sampling_topk=1, include_prompt_in_result=False
        )
        return sum(len(one.sequences_ids[0]) for one in out)

    return run


def ctranslate2_pair(folder: str, rows: int, prompt: int, new: int, beams: int = 1, kind: str = "float32") -> Run:
    """It makes int8 of a float32 folder while it loads."""
    import ctranslate2 as ct2

    translator = ct2.Translator(folder, device="cpu", compute_type=kind, intra_threads=THREADS, inter_threads=1)
    asked = [words(ids) for ids in prompts(rows, prompt)]

    def run() -> int:
        out = translator.translate_batch(asked, beam_size=beams, max_decoding_length=new, min_decoding_length=new)
        return sum(len(one.hypotheses[0]) for one in out)

    return run


def words(ids: list[int]) -> list[str]:
    return [f"t{i}" for i in ids]


# --- llama.cpp ------------------------------------------------------------------------------------------------------


def llama_cpp(folder: str, rows: int, prompt: int, new: int, to: str | None = None, keeps_prompt: bool = False) -> Run:
    """Its server, called within the process; `folder` is a GGUF file. `keeps_prompt`: only the first run reads it."""
    import xllamacpp

    if rows != 1:
        raise SystemExit("one row is asked of llama.cpp here")
    params = xllamacpp.CommonParams()
    params.model.path = folder
    params.n_ctx, params.n_parallel, params.verbosity, params.warmup = max(512, prompt + new + 64), 1, -1, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    server = xllamacpp.Server(params)
    how = {"temperature": 0.0, "ignore_eos": True, "cache_prompt": keeps_prompt}

    def logprobs(ids: list[int]) -> Sequence[float]:
        vocab = 50_257 if "gpt2" in Path(folder).parent.name else 32_000
        found = server.handle_completions({"prompt": ids, "max_tokens": 1, "n_probs": vocab, "logprobs": vocab} | how)
        row = [float("nan")] * vocab
        for one in found["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            row[one["id"]] = one["logprob"]
        return row

    keep(to, logprobs)
    (asked,) = prompts(1, prompt)

    def run() -> int:
        return server.handle_completions({"prompt": asked, "max_tokens": new} | how)["usage"]["completion_tokens"]

    return run


# --- from the start of a process --------------------------------------------------------------------------------------


def start_process(who: str, folder: str, **more: Any) -> Run:
    """A whole process of its own, from its start to its first token."""
    line = f"from bench.generators import {who}; print({who}({folder!r}, rows=1, prompt=16, new=1, **{more!r})())"

    def run() -> int:
        done = subprocess.run([sys.executable, "-c", line], stdout=subprocess.PIPE, text=True, check=True)
        return int(done.stdout.split()[-1])

    return run
