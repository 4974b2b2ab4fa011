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


# GPT-2

def gpt2_shapes(config):
    """Name -> shape of every tensor. Matrices are [inputs, outputs]."""
    hidden, ffn = config["n_embd"], config["n_inner"]
    shapes = {"transformer.wte.weight": (config["vocab_size"], hidden),
              "transformer.wpe.weight": (config["n_positions"], hidden)}
    for layer in range(config["n_layer"]):
        for name, shape in (("ln_1", (hidden,)), ("attn.c_attn", (hidden, 3 * hidden)),
                            ("attn.c_proj", (hidden, hidden)), ("ln_2", (hidden,)),
                            ("mlp.c_fc", (hidden, ffn)), ("mlp.c_proj", (ffn, hidden))):
            shapes[f"transformer.h.{layer}.{name}.weight"] = shape
            shapes[f"transformer.h.{layer}.{name}.bias"] = shape[-1:]
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def gpt2(config, tensors, tokens):
    """Logits [tokens, vocabulary] of one text."""
    tensors = {name: tensor.double() for name, tensor in tensors.items()}
    heads, length = config["n_head"], len(tokens)
    size = config["n_embd"] // heads

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + config["layer_norm_epsilon"]).sqrt()
        return x * tensors[name + ".weight"] + tensors[name + ".bias"]

    def product(x, name):
        return x @ tensors[name + ".weight"] + tensors[name + ".bias"]

    wte, wpe = tensors["transformer.wte.weight"], tensors["transformer.wpe.weight"]
    x = wte[torch.tensor(tokens)] + wpe[:length]
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        q, k, v = product(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1)
        mixed = []
        for part in (slice(head * size, (head + 1) * size) for head in range(heads)):
            mixed.append(causal_softmax(q[:, part] @ k[:, part].T / math.sqrt(size)) @ v[:, part])
        x = x + product(torch.cat(mixed, -1), at + "attn.c_proj")
        y = product(norm(x, at + "ln_2"), at + "mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + product(y, at + "mlp.c_proj")
    head = wte if config["tie_word_embeddings"] else tensors["lm_head.weight"]
    return norm(x, "transformer.ln_f") @ head.T


def shapes_of(config):
    return gpt2_shapes(config) if config["model_type"] == "gpt2" else llama_shapes(config)


def logits_of(config, tensors, tokens):
    return (gpt2 if config["model_type"] == "gpt2" else llama)(config, tensors, tokens)
