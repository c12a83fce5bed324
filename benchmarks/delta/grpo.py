"""Trains SmolLM2-135M by policy gradients (GRPO) and saves the bfloat16 weights that engines get.

    python benchmarks/delta/grpo.py                     # all three runs, ten minutes of a core

Each step of a run samples 4 answers to each of 6 sums from the bfloat16 weights, rewards them, and
takes one AdamW step on float32 masters with the advantages of each group. Two ages of a run differ
in how its masters begin:

- early: on bfloat16 values, as a run that has just loaded a checkpoint;
- late: anywhere between the bfloat16 values that they round to, as after many steps.

Both begin with weights that are spread over the cells of the 4-bit grid (models.py) and trained on
sums for 10 steps. An interrupted run continues from its last saved state. Needs torch,
transformers, tokenizers and gguf.
"""

import argparse
import re
import time

import gguf
import numpy
import tokenizers
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

import models
import store

# Name: age, learning rate, and the steps after which weights are saved; the last one ends the run.
RUNS = {
    "early-3e-6": ("early", 3e-6, (0, 9, 10)),
    "late-1e-6": ("late", 1e-6, (2, 9, 10)),
    "early-1e-6": ("early", 1e-6, (9, 10, 24, 25)),
}
TUNING_STEPS = 10
PROMPTS, ANSWERS, NEW_TOKENS = 6, 4, 16
END = "<|im_end|>"


def tokenizer():
    """SmolLM2's byte-level BPE, from the GGUF file."""
    fields = gguf.GGUFReader(models.smollm_file()).fields
    words = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({word: at for at, word in enumerate(words)}, merges))
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, byte_level])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", END])
    return made


def model(dtype):
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True,
        max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=2, dtype=dtype,
    )
    return LlamaForCausalLM(config).to(dtype)


def weights(network):
    """The parameters by name; the output layer shares its weights with the embedding."""
    return dict(network.named_parameters())


def assign(network, values):
    with torch.no_grad():
        for name, parameter in weights(network).items():
            parameter.copy_(values[name])


def sums(generator, count):
    """Questions and their results."""
    numbers = torch.randint(10, 100, (count, 2), generator=generator).tolist()
    return [(f"<|im_start|>user\nWhat is {a} + {b}?{END}\n<|im_start|>assistant\n", a + b) for a, b in numbers]


def loss(network, tokens, mask, scale):
    """The sum of −scale · log probability over the tokens in `mask`, by their number. Every prompt
    has the same length, so that nothing is padded on the left."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = network.model(tokens[:, :-1]).last_hidden_state
        mask = mask[:, 1:]
        scores = network.lm_head(hidden[mask]).float()
    costs = functional.cross_entropy(scores, tokens[:, 1:][mask], reduction="none")
    return (costs * scale[:, None].expand(mask.shape)[mask]).sum() / mask.sum()


def optimize(network, optimizer, cost):
    optimizer.zero_grad()
    cost.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return norm.item()


def tune(network, words):
    """Trains on sums and their results, so that the weights leave the grid and answers are
    short."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True)
    for step in range(TUNING_STEPS):
        pairs = sums(torch.Generator().manual_seed(step), 8)
        prompts = [words.encode(text).ids for text, _ in pairs]
        answers = [words.encode(f"{result}{END}").ids for _, result in pairs]
        longest = max(len(answer) for answer in answers)
        rows = [p + a + [2] * (longest - len(a)) for p, a in zip(prompts, answers)]
        mask = [[False] * len(p) + [True] * len(a) + [False] * (longest - len(a)) for p, a in zip(prompts, answers)]
        cost = loss(network, torch.tensor(rows), torch.tensor(mask), torch.ones(len(rows)))
        optimize(network, optimizer, cost)
        print(f"tuning step {step}: loss {cost.item():.3f}", flush=True)


def start(words):
    """The tuned weights that all runs begin with, made once."""
    path = store.folder() / "grpo" / "tuned.pt"
    if not path.exists():
        network = model(torch.float32)
        assign(network, {name: torch.from_numpy(values) for name, values in models.smollm().items()})
        tune(network, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, {name: value.detach() for name, value in weights(network).items()})
    return torch.load(path)


def save(path, content):
    torch.save(content, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def reward(text, result):
    """1 for the result alone, less the wrong share of another number and 0.02 a character."""
    number = re.search(r"\d+", text)
    error = min(1.0, abs(int(number[0][:6]) - result) / result) if number else 1.0
    return 1.0 - error - 0.02 * len(text)


def rollout(engine, words, step):
    """Answers of the bfloat16 engine: tokens, the mask of the answers, and their advantages."""
    torch.manual_seed(step)
    questions = [pair for pair in sums(torch.Generator().manual_seed(1000 + step), PROMPTS) for _ in range(ANSWERS)]
    prompts = torch.tensor([words.encode(text).ids for text, _ in questions])
    with torch.no_grad():
        tokens = engine.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=NEW_TOKENS, use_cache=True
        )
    answers = tokens[:, prompts.shape[1]:]
    ended = (answers == 2).cumsum(1) - (answers == 2).long()
    mask = torch.cat([torch.zeros_like(prompts, dtype=torch.bool), ended == 0], 1)
    texts = words.decode_batch([row[keep].tolist() for row, keep in zip(answers, ended == 0)])
    rewards = torch.tensor([reward(text, result) for text, (_, result) in zip(texts, questions)])
    groups = rewards.view(PROMPTS, ANSWERS)
    advantages = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    return tokens, mask, advantages.flatten(), rewards.mean().item()


def export(network, engine, path):
    """Gives the engine the masters rounded to bfloat16, and saves them if there is a path."""
    assign(engine, weights(network))
    if path:
        bits = {name: ("BF16", value.detach().view(torch.int16).numpy().view(numpy.uint16))
                for name, value in weights(engine).items()}
        store.write(path, bits)


def run(name):
    age, rate, saved = RUNS[name]
    folder = store.folder() / "grpo" / name
    if (folder / f"{saved[-1]:02}.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    words, network, engine = tokenizer(), model(torch.float32), model(torch.bfloat16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, fused=True)
    state, first = folder / "state.pt", 0
    if state.exists():
        last = torch.load(state)
        assign(network, last["weights"])
        optimizer.load_state_dict(last["optimizer"])
        first = last["step"]
    else:
        begin = start(words)
        rounded = {key: value.bfloat16().float() for key, value in begin.items()}
        assign(network, rounded if age == "early" else begin)
    for step in range(first, saved[-1] + 1):
        began = time.monotonic()
        if step > first:
            tokens, mask, advantages, mean = rollout(engine, words, step)
            norm = optimize(network, optimizer, loss(network, tokens, mask, advantages))
            print(f"{name} step {step}: reward {mean:.3f}, gradient norm {norm:.3f}, "
                  f"{mask.sum()} tokens, {time.monotonic() - began:.0f} s", flush=True)
        export(network, engine, folder / f"{step:02}.safetensors" if step in saved else None)
        if step > first and step % 5 == 0:
            save(state, {"weights": weights(network), "optimizer": optimizer.state_dict(), "step": step})
    state.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", nargs="*", choices=RUNS, default=list(RUNS), help="which runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.runs:
        run(name)


if __name__ == "__main__":
    main()
