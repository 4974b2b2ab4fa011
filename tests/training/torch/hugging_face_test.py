"""hugging_face_test.py BUILD: folders of Hugging Face's library in and out of hdt-train. What the models
compute is compared with an independent implementation (reference_models.py)."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

import torch

import hugging_face_files as files
import reference_models

BUILD = os.path.abspath(sys.argv.pop(1))
TRAIN = os.path.join(BUILD, "bin", "hdt-train")
PRINT_LOGITS = os.path.join(BUILD, "tests", "print_logits")
TEXT = os.path.join(os.path.dirname(os.path.dirname(BUILD)), "LICENSE")
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(10 ** 9)))
RUN_S = 120  # the bound of a wait

LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 257, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-6, "rope_theta": 500.0, "rope_scaling": None, "tie_word_embeddings": False}
# The wavelengths of LLAMA's frequencies are 6 to 600 positions: of each sort one.
LLAMA3_SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}
GPT2 = {"model_type": "gpt2", "n_layer": 4, "n_embd": 32, "n_head": 4, "n_inner": 48, "vocab_size": 257,
        "n_positions": 64, "layer_norm_epsilon": 1e-4, "activation_function": "gelu_new",
        "tie_word_embeddings": True}
MODELS = {
    "gpt2": GPT2,
    "gpt2, untied": {**GPT2, "tie_word_embeddings": False},
    "llama": LLAMA,
    "llama, a key a head": {**LLAMA, "num_key_value_heads": 4},
    "llama, one key for all, scaled, tied": {**LLAMA, "num_key_value_heads": 1, "tie_word_embeddings": True,
                                             "rope_scaling": {"rope_type": "linear", "factor": 2.5}},
    "llama 3": {**LLAMA, "rope_scaling": LLAMA3_SCALING},
    "llama 3, tied": {**LLAMA, "rope_scaling": LLAMA3_SCALING, "tie_word_embeddings": True},
}
TWO_REPLICAS = (4, ["--use-tp-pp-dp-mapping", "--hetero-pipeline-stages", "1", "3", "1", "1",
                    "--hetero-pipeline-stages", "2", "2", "2", "--micro-batch-size", "2",
                    "--num-micro-batches-per-dp", "1", "4", "1", "2"])
# Embedding and head on one rank.
TWO_WHOLE_REPLICAS = (2, ["--micro-batch-size-per-dp", "1", "4", "1", "2",
                          "--num-micro-batches-per-dp", "1", "2", "1", "2"])
ONE = (1, ["--micro-batch-size", "12"])


def random_tensors(config, dtype=torch.float32):
    """Large enough that every part of the model matters for the logits."""
    tensors = {}
    for name, shape in reference_models.shapes_of(config).items():
        norm = len(shape) == 1 and name.endswith(".weight")
        tensors[name] = (torch.randn(shape) * (0.2 if len(shape) == 2 else 0.3) + norm).to(dtype)
    return tensors


def names_of(config):
    return sorted(reference_models.shapes_of(config))


class HuggingFace(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        self.scratch = tempfile.TemporaryDirectory(prefix="hdt-hugging-face-")
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def folder(self, config, tensors=None, name="model", shards=1):
        path = self.path(name)
        files.write_folder(path, config, random_tensors(config) if tensors is None else tensors, shards)
        return path

    def train(self, layout, *arguments, code=0):
        ranks, flags = layout
        environment = dict(os.environ, OMP_NUM_THREADS="1", HDT_LOG_LEVEL="error", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", XDG_RUNTIME_DIR=self.scratch.name)
        launcher = [] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        run = subprocess.run([*launcher, TRAIN, "--text", TEXT, "--seq-length", "32", "--log-interval", "1",
                              *flags, *map(str, arguments)], env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=RUN_S, check=False)
        if code is not None:
            self.assertEqual(run.returncode, code, run.stdout)
        return run.stdout

    def logits(self, folder, tokens):
        run = subprocess.run([PRINT_LOGITS, folder, *map(str, tokens)], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=RUN_S, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        return torch.tensor([[float(x) for x in line.split()] for line in run.stdout.splitlines()]).double()

    def check_logits(self, folder):
        """HDT's logits of a folder against the reference's, of a text that is as long as the model takes."""
        config, tensors = files.read_folder(folder)
        tokens = torch.randint(config["vocab_size"], (48,)).tolist()
        expected = reference_models.logits_of(config, tensors, tokens)
        self.assertGreater(expected.abs().max(), 1, "logits of no size prove nothing")
        difference = (self.logits(folder, tokens) - expected).abs().max()
        self.assertLess(difference, 1e-4 * max(1, expected.abs().max()), f"seed {SEED}")

    def test_logits_are_those_of_the_reference(self):
        for i, (name, config) in enumerate(MODELS.items()):
            with self.subTest(name):
                self.check_logits(self.folder(config, name=str(i)))

    def test_types_and_shards(self):
        for i, dtype in enumerate((torch.bfloat16, torch.float16)):
            with self.subTest(dtype):
                self.check_logits(self.folder(LLAMA, random_tensors(LLAMA, dtype), name=str(i), shards=3))
        # Tables of old versions, and names without the first part.
        tensors = {name.removeprefix("model."): tensor for name, tensor in random_tensors(LLAMA).items()}
        plain = self.folder(LLAMA, tensors, name="plain")
        with_table = dict(tensors, **{"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
        table = self.folder(LLAMA, with_table, name="table")
        self.assertTrue(torch.equal(self.logits(plain, [1, 2, 3]), self.logits(table, [1, 2, 3])))

    def losses(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line)["loss"] for line in file]

    def check_training(self, config, layout):
        """In, 20 steps on unequal ranks, out."""
        tensors = random_tensors(config, torch.bfloat16)
        start = self.folder(config, tensors, name="start", shards=2)
        common = ["--load-hf", start, "--train-iters", 20, "--lr", "1e-3", "--lr-warmup-iters", 2]
        output = self.train(layout, *common, "--save", self.path("save"), "--loss-log", self.path("log"))
        self.assertIn(f"begins with the model in {start}", output)
        self.train(ONE, *common, "--loss-log", self.path("one"))
        losses, expected = self.losses("log"), self.losses("one")
        self.assertEqual(len(losses), 20)
        for step, (loss, other) in enumerate(zip(losses, expected)):
            self.assertAlmostEqual(loss, other, delta=1e-4 * other, msg=f"step {step + 1}, seed {SEED}")
        self.assertLess(losses[-1], losses[0])
        trained = os.path.join(self.path("save"), "iter_0000020")
        made, parameters = files.read_folder(trained)
        self.assertEqual(sorted(parameters), names_of(config))
        for name, tensor in parameters.items():
            self.assertFalse(torch.equal(tensor, tensors[name].float()), f"{name} was not trained")
        for key, value in config.items():
            self.assertEqual(made.get(key), value, key)
        self.check_logits(trained)
        # The exported folder is loaded again, and a checkpoint comes before --load-hf.
        again = self.train(ONE, "--load-hf", trained, "--train-iters", 1)
        self.assertIn(f"begins with the model in {trained}", again)
        resumed = self.train(layout, *common, "--train-iters", 21, "--load", self.path("save"))
        self.assertIn(f"goes on from {trained}, after step 20", resumed)
        self.assertNotIn("begins with", resumed)

    def test_training_a_llama_3_on_unequal_stages(self):
        self.check_training(MODELS["llama 3"], TWO_REPLICAS)

    def test_training_a_tied_llama_on_unequal_replicas(self):
        self.check_training(MODELS["llama 3, tied"], TWO_WHOLE_REPLICAS)

    def test_training_a_tied_llama_on_unequal_stages(self):
        self.check_training(MODELS["llama 3, tied"], TWO_REPLICAS)

    def test_training_a_gpt2_on_unequal_stages(self):
        self.check_training(MODELS["gpt2, untied"], TWO_REPLICAS)

    def test_training_a_tied_gpt2_on_unequal_replicas(self):
        self.check_training(GPT2, TWO_WHOLE_REPLICAS)

    def test_training_a_tied_gpt2_on_unequal_stages(self):
        self.check_training(GPT2, TWO_REPLICAS)

    def test_a_gpt2_as_others_store_it(self):
        """Without the first part of the names, with masks, and with a width that follows from the other."""
        config = {**GPT2, "n_inner": 128}
        tensors = random_tensors(config)
        whole = self.folder(config, tensors, name="whole")
        stored = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        stored.update({f"h.{i}.attn.bias": torch.ones(1, 1, 64, 64).tril() for i in range(4)})
        part = self.folder({**config, "n_inner": None}, stored, name="part")
        self.assertTrue(torch.equal(self.logits(whole, [1, 2, 3]), self.logits(part, [1, 2, 3])))

    def test_flags_make_a_gpt2(self):
        flags = ["--num-layers", 2, "--hidden-size", 32, "--num-attention-heads", 4, "--ffn-hidden-size", 48,
                 "--max-position-embeddings", 64, "--norm-epsilon", "1e-4", "--attention-dropout", 0,
                 "--hidden-dropout", "0.0", "--position-embedding-type", "learned_absolute"]
        self.train(ONE, *flags, "--normalization", "LayerNorm", "--tie-embeddings-and-output-weights",
                   "--train-iters", 1, "--save", self.path("save"))
        folder = os.path.join(self.path("save"), "iter_0000001")
        config, _ = files.read_folder(folder)
        for key, value in {**GPT2, "n_layer": 2}.items():
            self.assertEqual(config.get(key), value, key)
        self.check_logits_of_any_size(folder)
        self.refused("learned_absolute and --normalization RMSNorm: expected rope and RMSNorm", *flags)
        for flag in ("--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear",
                     "--use-rope-scaling"):
            self.refused(f"{flag}: GPT-2 has", *flags, "--normalization", "LayerNorm", flag)
        self.refused("--swiglu: GPT-2 has", "--load-hf", folder, "--swiglu")
        self.refused("--normalization RMSNorm: ", "--load-hf", folder, "--normalization", "RMSNorm")

    def test_flags_make_the_same_model(self):
        output = self.train(ONE, "--num-layers", 2, "--hidden-size", 32, "--num-attention-heads", 4,
                            "--group-query-attention", "--num-query-groups", 2, "--kv-channels", 8,
                            "--ffn-hidden-size", 48, "--max-position-embeddings", 64, "--norm-epsilon",
                            "1e-6", "--rotary-base", 500, "--use-rope-scaling", "--rope-scaling-factor", 4,
                            "--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear",
                            "--normalization",
                            "RMSNorm", "--position-embedding-type", "rope",
                            "--untie-embeddings-and-output-weights", "--train-iters", 1, "--save",
                            self.path("save"))
        self.assertIn("2 layers", output)
        config, _ = files.read_folder(os.path.join(self.path("save"), "iter_0000001"))
        scaling = {**LLAMA3_SCALING, "original_max_position_embeddings": 8192}
        for key, value in {**LLAMA, "num_hidden_layers": 2, "rope_scaling": scaling}.items():
            self.assertEqual(config.get(key), value, key)
        self.check_logits_of_any_size(os.path.join(self.path("save"), "iter_0000001"))
        # Sizes from the file, start values of its own.
        file = os.path.join(self.path("save"), "iter_0000001", "config.json")
        self.assertIn("2 layers", self.train(ONE, "--hf-config", file, "--train-iters", 1))
        # A run goes on only as the same model.
        refused = self.train(ONE, "--hf-config", file, "--rotary-base", 500, "--load", self.path("save"),
                             "--seed", 5, code=2)
        self.assertIn("--seed 1234 there and 5 here", refused)
        refused = self.train(ONE, "--num-layers", 2, "--hidden-size", 32, "--num-attention-heads", 4,
                             "--ffn-hidden-size", 48, "--max-position-embeddings", 64, "--load",
                             self.path("save"), code=2)
        for text in ("--rotary-base 500 there and is not given here", "--norm-epsilon 1e-06 there",
                     "--num-query-groups 2 there"):
            self.assertIn(text, refused)

    def check_logits_of_any_size(self, folder):
        config, tensors = files.read_folder(folder)
        tokens = list(range(20))
        difference = self.logits(folder, tokens) - reference_models.logits_of(config, tensors, tokens)
        self.assertLess(difference.abs().max(), 1e-4)

    def refused(self, text, *arguments, layout=ONE):
        output = self.train(layout, *arguments, code=None if layout[0] > 1 else 2)
        self.assertIn(text, output)
        self.assertEqual(len(re.findall(r"^hdt-train: ", output, re.MULTILINE)), 1, output)
        self.assertNotIn("step 1", output)

    def test_tensors_that_do_not_fit_are_named(self):
        tensors = random_tensors(LLAMA)
        query = "model.layers.1.self_attn.q_proj.weight"
        cases = {
            f"{query} is missing": {name: t for name, t in tensors.items() if name != query},
            "model.layers.9.bias is not one of this model": {**tensors, "model.layers.9.bias": torch.ones(3)},
            f"{query} is [32, 16] there, expected [32, 32]": {**tensors, query: torch.ones(32, 16)},
            f"{query} is I32 there, expected F32, BF16, F16 or F64": {**tensors, query: tensors[query].int()},
            "model.norm.weight is there twice": {**tensors, "norm.weight": torch.ones(32)},
            "; and 35 more": {"lm_head.weight": tensors["lm_head.weight"], "x": torch.ones(1)},
        }
        for i, (text, wrong) in enumerate(cases.items()):
            with self.subTest(text):
                self.refused(text, "--load-hf", self.folder(LLAMA, wrong, name=str(i)))

    def test_damaged_folders_are_refused(self):
        def damaged(name, shards=1):
            return self.folder(LLAMA, name=name, shards=shards)

        self.refused("config.json: No such file", "--load-hf", self.path("nowhere"))
        folder = damaged("no tensors")
        os.remove(os.path.join(folder, "model.safetensors"))
        self.refused("neither model.safetensors nor model.safetensors.index.json", "--load-hf", folder)
        folder = damaged("no shard", shards=2)
        os.remove(os.path.join(folder, "model-00002-of-00002.safetensors"))
        self.refused("model-00002-of-00002.safetensors: No such file", "--load-hf", folder)
        folder = damaged("cut")
        with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
            file.truncate(5000)
        self.refused("model.safetensors: ", "--load-hf", folder)
        for i, (text, spoilt) in enumerate({
                "is no name of a shard": {"model.norm.weight": "../model.safetensors"},
                "is not in the file, as": {"model.x": "model-00001-of-00002.safetensors"},
                "does not have it there": {"lm_head.weight": "model-00001-of-00002.safetensors",
                                           "model.embed_tokens.weight": "model-00002-of-00002.safetensors"},
        }.items()):
            folder = damaged(f"index {i}", shards=2)
            path = os.path.join(folder, "model.safetensors.index.json")
            with open(path, encoding="utf-8") as file:
                index = json.load(file)
            index["weight_map"].update(spoilt)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(index, file)
            self.refused(text, "--load-hf", folder)

    def test_configurations_that_hdt_does_not_compute_are_refused(self):
        for i, (text, change) in enumerate({
                "'model_type' is \"gpt_neox\", expected": {"model_type": "gpt_neox"},
                "'model_type' is 3": {"model_type": 3},
                "'hidden_act' is \"gelu\", expected \"silu\"": {"hidden_act": "gelu"},
                "'attention_bias' is true": {"attention_bias": True},
                "'head_dim' is 16, expected 8": {"head_dim": 16},
                "'hidden_size' is missing": {"hidden_size": None},
                "'num_hidden_layers' is -1": {"num_hidden_layers": -1},
                "'rms_norm_eps' is \"small\"": {"rms_norm_eps": "small"},
                "'tie_word_embeddings' is 1": {"tie_word_embeddings": 1},
                "--num-query-groups 3: expected a divisor": {"num_key_value_heads": 3},
                "'rope_scaling': 'rope_type' is \"yarn\"":
                    {"rope_scaling": {"rope_type": "yarn", "factor": 2}},
                "'original_max_position_embeddings' is missing":
                    {"rope_scaling": {"rope_type": "llama3", "factor": 2}},
        }.items()):
            with self.subTest(text):
                self.refused(text, "--load-hf", self.folder({**LLAMA, **change}, {}, name=str(i)))

    def test_flags_that_contradict_are_refused_with_both_values(self):
        folder = self.folder(MODELS["llama 3, tied"])
        for text, flags in {
                "--hidden-size 64: ": ["--hidden-size", 64],
                "/config.json has 32": ["--hidden-size", 64],
                "--num-query-groups 4: ": ["--group-query-attention", "--num-query-groups", 4],
                "--rotary-base 10000: ": ["--rotary-base", 10000],
                "--untie-embeddings-and-output-weights: ": ["--untie-embeddings-and-output-weights"],
                "--seq-length 65: expected at most --max-position-embeddings 64": ["--seq-length", 65],
                "--load-hf and --hf-config exclude each other": ["--hf-config", folder + "/config.json"],
        }.items():
            with self.subTest(text):
                self.refused(text, "--load-hf", folder, *flags)
        for text, flags in {
                "--group-query-attention: expected --num-query-groups": ["--group-query-attention"],
                "--rope-scaling-factor: expected --use-rope-scaling": ["--rope-scaling-factor", 2],
                "exclude each other": ["--use-rope-scaling", "--rotary-seq-len-interpolation-factor", 2],
                "--num-query-groups 3: expected a divisor of --num-attention-heads 4":
                    ["--group-query-attention", "--num-query-groups", 3],
                "--kv-channels 16: expected --hidden-size 128 / --num-attention-heads 4":
                    ["--kv-channels", 16],
                "rope and --normalization LayerNorm: expected rope and": ["--normalization", "LayerNorm"],
                "--normalization: 'None' given; expected RMSNorm or LayerNorm": ["--normalization", "None"],
        }.items():
            with self.subTest(text):
                self.refused(text, *flags)


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(verbosity=2)
