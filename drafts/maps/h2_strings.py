"""h2_strings.py ROOT: run after the maps are applied. Names of generate/, train/ and pipeline/ that stand as strings in
tests (monkeypatch, child processes), which a type-aware rename cannot see. Every pattern must match at least once."""
import re, subprocess, sys
root = sys.argv[1]
FIXES = [
    (r'(beam_search, )"Ending"', r'\1"Hypothesis"'),
    (r'(beam_search, )"grown"', r'\1"extend_beam"'),
    (r'(beam_search, )"TOGETHER"', r'\1"MAX_PREFILL_TOKENS"'),
    (r'(beam_search, )"CHUNK"', r'\1"CHUNK_TOKENS"'),
    (r'(ModelRunner, )"read_fresh"', r'\1"prefill_batch"'),
    (r'(ModelRunner, )"step_back"', r'\1"drop_last_tokens"'),
    (r'(counting\(engine, )"read"', r'\1"prefill"'),
    (r'(DistanceBiases, )"sight"', r'\1"make_sight"'),
    (r'(sampling, )"uniforms"', r'\1"draw_uniforms"'),
    (r'(sampling, )"ENOUGH"', r'\1"SORTED_COUNTS"'),
    (r'(Engine, )"_read_piece"', r'\1"_prefill_chunk"'),
    (r'(memory_forecast, )"resident"', r'\1"resident_bytes"'),
    (r'(loop, )"resident"', r'\1"resident_bytes"'),
    (r'(loop, )"peak"', r'\1"peak_bytes"'),
    (r'(process_memory, )"PAUSE"', r'\1"MIN_TRIM_SECONDS"'),
    (r'Heap\(\)\.keep\(\)', r'Heap().keep_freed()'),  # child process of the heap test
    # head_loss: `module` is triform.train.head_loss there
    (r'(setattr\(module, )"CHUNK"', r'\1"MAX_LOGITS"'),
    # child processes of the serve tests
    (r'jobs = \[\*self\.waiting, \*\(job for job, _ in self\.writing\), \*\(\[self\.reading\] if self\.reading else \[\]\)\]',
     r'jobs = [*self.waiting, *(job for job, _ in self.running), *([self.prefilling] if self.prefilling else [])]'),
]
files = subprocess.run(["git", "ls-files", "tests/*.py"], cwd=root, capture_output=True, text=True).stdout.split()
for pattern, new in FIXES:
    count = 0
    for f in files:
        text = open(f"{root}/{f}").read()
        changed, n = re.subn(pattern, new, text)
        if n:
            open(f"{root}/{f}", "w").write(changed); count += n
    print(count, pattern)
