"""hugging_face_files.py: folders of Hugging Face's library, written and read by the format's document, with
nothing but json, struct and torch."""

import json
import os
import struct

import torch

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64,
         "I32": torch.int32}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def raw(tensor):
    """A tensor's bytes; numpy has no bfloat16."""
    tensor = tensor.contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = raw(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(content[begin:end]),
                                         dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write_folder(folder, config, tensors, shards=1):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        write_safetensors(os.path.join(folder, file), {name: tensors[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


def read_folder(folder):
    """The configuration, and the tensors by name."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return config, read_safetensors(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    tensors = {}
    for file in sorted(set(weight_map.values())):
        tensors.update(read_safetensors(os.path.join(folder, file)))
    assert set(tensors) == set(weight_map), set(tensors) ^ set(weight_map)
    return config, tensors
