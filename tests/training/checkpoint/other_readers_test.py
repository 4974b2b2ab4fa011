"""other_readers_test.py WRITE_EXAMPLE: a checkpoint as other programs read it: by the formats' documents,
with nothing but Python's struct and json; and by the library safetensors, where it is installed."""

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import safetensors
except ImportError:
    safetensors = None

PROGRAM = sys.argv.pop(1)
LAYERS = 4


def expected_tensors():
    """Name -> (shape, values), as write_example.cc says."""
    expected = {}
    for layer in range(LAYERS):
        values = [layer + i / 8 for i in range((layer + 1) * 5)]
        for suffix, each in (("", values), (".exp_avg", [-v for v in values]),
                             (".exp_avg_sq", [v / 1024 for v in values])):
            expected[f"model.layers.{layer}.weight{suffix}"] = ([layer + 1, 5], each)
    return expected


def read_plain(path):
    """Name -> (shape, values, bytes) of a safetensors file of F32 tensors, and its metadata."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])),
                         data[begin:end])
    return tensors, metadata


class OtherReaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.save = os.path.join(cls.temporary.name, "save")
        subprocess.run([PROGRAM, cls.save], check=True, timeout=60)
        cls.folder = os.path.join(cls.save, "iter_0000100")

    def path(self, name):
        return os.path.join(self.folder, name)

    def load(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def shards(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".safetensors"))

    def test_the_tracker_names_the_folder(self):
        with open(os.path.join(self.save, "latest_checkpointed_iteration.txt"), encoding="utf-8") as file:
            self.assertEqual(int(file.read()), 100)

    def test_tensors_by_struct_and_json(self):
        found = {}
        for shard in self.shards():
            tensors, metadata = read_plain(self.path(shard))
            self.assertEqual(metadata, {"format": "pt"})
            for name, (shape, values, _) in tensors.items():
                self.assertNotIn(name, found)
                self.assertEqual(shard.startswith("optimizer-"), ".exp_avg" in name)
                found[name] = (shape, values)
        self.assertEqual(found, expected_tensors())

    def test_the_index_is_hugging_faces(self):
        index = self.load("model.safetensors.index.json")
        size = 0
        for name, shard in index["weight_map"].items():
            size += len(read_plain(self.path(shard))[0][name][2])
        self.assertEqual(index["metadata"]["total_size"], size)
        self.assertEqual(sorted(index["weight_map"]), [f"model.layers.{i}.weight" for i in range(LAYERS)])

    def test_the_state_has_every_tensor_with_its_hash(self):
        state = self.load("training_state.json")
        self.assertEqual((state["version"], state["step"], state["seed"], state["consumed_samples"]),
                         (1, 100, 7, 1200))
        self.assertEqual(state["fingerprint"], {"hidden_size": "5"})
        self.assertEqual(state["shards"], {name: os.path.getsize(self.path(name)) for name in self.shards()})
        self.assertEqual(sorted(state["tensors"]), sorted(expected_tensors()))
        for name, record in state["tensors"].items():
            shape, _, raw = read_plain(self.path(record["shard"]))[0][name]
            self.assertEqual((record["dtype"], record["shape"]), ("F32", shape))
            self.assertEqual(record["sha256"], hashlib.sha256(raw).hexdigest())

    @unittest.skipIf(safetensors is None, "the library safetensors is not installed (Debian 12 has none)")
    def test_tensors_by_the_library(self):
        found = {}
        for shard in self.shards():
            with open(self.path(shard), "rb") as file:
                for name, tensor in safetensors.deserialize(file.read()):
                    self.assertEqual(tensor["dtype"], "F32")
                    raw = bytes(tensor["data"])
                    found[name] = (tensor["shape"], list(struct.unpack(f"<{len(raw) // 4}f", raw)))
        self.assertEqual(found, expected_tensors())


if __name__ == "__main__":
    unittest.main()
