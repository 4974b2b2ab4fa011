"""reference_models.py: the models that hdt-train has, written down a second time in plain PyTorch and fp64,
from their papers and the configuration that Hugging Face's library documents. They compute logits only."""

import math

import torch


def causal_softmax(scores):
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1)


# LLaMA

def llama_shapes(config):
    """Name -> shape of every tensor."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in (("self_attn.q_proj", (hidden, hidden)), ("self_attn.k_proj", (keys, hidden)),
                            ("self_attn.v_proj", (keys, hidden)), ("self_attn.o_proj", (hidden, hidden)),
                            ("mlp.gate_proj", (ffn, hidden)), ("mlp.up_proj", (ffn, hidden)),
                            ("mlp.down_proj", (hidden, ffn)), ("input_layernorm", (hidden,)),
                            ("post_attention_layernorm", (hidden,))):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def llama_frequencies(config):
    size = config["hidden_size"] // config["num_attention_heads"]
    frequencies = [config["rope_theta"] ** (-2 * i / size) for i in range(size // 2)]
    scaling = config.get("rope_scaling")
    if not scaling:
        return frequencies
    factor = scaling["factor"]
    if scaling["rope_type"] == "linear":
        return [frequency / factor for frequency in frequencies]
    assert scaling["rope_type"] == "llama3"
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    scaled = []
    for frequency in frequencies:
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            scaled.append(frequency)
        elif wavelength > original / low:
            scaled.append(frequency / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return scaled


def llama(config, tensors, tokens):
    """Logits [tokens, vocabulary] of one text."""
    tensors = {name: tensor.double() for name, tensor in tensors.items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size, length = config["hidden_size"] // heads, len(tokens)
    angles = torch.outer(torch.arange(length).double(), torch.tensor(llama_frequencies(config)).double())

    def norm(x, name):
        square = x.pow(2).mean(-1, keepdim=True)
        return x / (square + config["rms_norm_eps"]).sqrt() * tensors[name + ".weight"]

    def rotated(x):  # [heads, tokens, size], as complex numbers
        first, second = x.split(size // 2, -1)
        turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], -1)

    x = tensors["model.embed_tokens.weight"][torch.tensor(tokens)]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."

        def product(y, name):
            return y @ tensors[at + name + ".weight"].T  # pylint: disable=cell-var-from-loop

        y = norm(x, at + "input_layernorm")
        q = rotated(product(y, "self_attn.q_proj").view(length, heads, size).transpose(0, 1))
        k = rotated(product(y, "self_attn.k_proj").view(length, groups, size).transpose(0, 1))
        v = product(y, "self_attn.v_proj").view(length, groups, size).transpose(0, 1)
        mixed = []
        for head in range(heads):
            group = head * groups // heads
            mixed.append(causal_softmax(q[head] @ k[group].T / math.sqrt(size)) @ v[group])
        x = x + product(torch.cat(mixed, -1), "self_attn.o_proj")
        y = norm(x, at + "post_attention_layernorm")
        gate = product(y, "mlp.gate_proj")
        x = x + product(gate * torch.sigmoid(gate) * product(y, "mlp.up_proj"), "mlp.down_proj")
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ tensors[head].T


def shapes(config):
    return llama_shapes(config)


def logits(config, tensors, tokens):
    return llama(config, tensors, tokens)
