"""endurance_rank.py CASE COUNT: one rank of a job that does one thing COUNT times, as torch_endurance_test.py
starts it. It ends with 0 if everything that it checks holds. SEED: of what is random, the same on all
ranks."""

import datetime
import os
import random
import sys
import time

import torch
import torch.distributed as dist

import hdt_torch  # noqa: F401

SEED = int(os.environ["SEED"])
TIMEOUT = datetime.timedelta(seconds=60)
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64]


def resources():
    """(descriptors, mappings of shared memory, bytes of memory) of this process."""
    descriptors = len(os.listdir("/proc/self/fd"))
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        shared = sum("memfd:" in line for line in maps)
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return descriptors, shared, int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """Fails where a process has more at the end than after half of its rounds. The first hundreds fill the
    pools of the allocator, of torch and of libhdt. All ranks stay until all have measured: when the process
    that hosts the node's daemon leaves, another one hosts it, and has more from then on."""
    MEMORY = 16 << 20  # what the allocator's pools may still gain

    def __init__(self, rounds):
        self._rounds, self._from, self._before = rounds, max(1, rounds // 2), None

    def after(self, round_number):
        if round_number == self._from:
            self._before = resources()
        if round_number != self._rounds:
            return
        allowed = (*self._before[:2], self._before[2] + self.MEMORY)
        dist.barrier()
        end = time.monotonic() + TIMEOUT.total_seconds() / 2
        now = resources()
        while any(mine > most for mine, most in zip(now, allowed)) and time.monotonic() < end:
            time.sleep(0.1)  # the daemon that this process may host ends groups a moment later
            now = resources()
        dist.barrier()
        figures = f"{self._before} after {self._from}, {now} at the end"
        assert all(mine <= most for mine, most in zip(now, allowed)), \
            f"descriptors, shared mappings, memory: {figures}"
        print(f"{self._rounds} rounds: {figures}", flush=True)


def filled(message, count, dtype):
    return torch.full((count,), message % 100 + 1, dtype=dtype)


def batches(rank, size, count):
    """Batches of sends and receives that all ranks draw alike, in another order on each rank, of which
    several are under way together. Messages between two ranks match in the order of their calls."""
    dice, own = random.Random(SEED), random.Random(f"{SEED} {rank}")
    growth, message, under_way = Growth(count), 0, []
    for done in range(1, count + 1):
        pairs = {}
        for _ in range(dice.randrange(1, 12)):
            message += 1
            pair = dice.sample(range(size), 2)
            length = dice.choice([1, 7, 1000, 70_000])
            pairs.setdefault(tuple(pair), []).append((message, length, dice.choice(TYPES)))
        mine = [[(pair, each) for each in messages] for pair, messages in pairs.items() if rank in pair]
        calls, expected, kept = [], [], []
        while mine:  # a random order that keeps that of each pair
            messages = own.choice(mine)
            (source, to), (number, length, dtype) = messages.pop(0)
            if not messages:
                mine.remove(messages)
            if source == rank:
                kept.append(filled(number, length, dtype))
                calls.append(dist.P2POp(dist.isend, kept[-1], to))
            else:
                tensor = torch.zeros(length, dtype=dtype)
                expected.append((tensor, number))
                calls.append(dist.P2POp(dist.irecv, tensor, source))
        under_way.append((dist.batch_isend_irecv(calls) if calls else [], expected, kept))
        while len(under_way) > (own.randrange(4) if done < count else 0):
            works, expected, _ = under_way.pop(0)
            for work in works:
                work.wait()
            for tensor, number in expected:
                wanted = filled(number, tensor.numel(), tensor.dtype)
                assert torch.equal(tensor, wanted), (done, number, tensor)
        growth.after(done)


def groups(rank, size, count):
    """Groups of some of the ranks, made, used and destroyed."""
    dice, growth = random.Random(SEED), Growth(count)
    for done in range(1, count + 1):
        ranks = sorted(dice.sample(range(size), dice.randrange(1, size + 1)))
        length = dice.choice([1, 5000])
        group = dist.new_group(ranks, timeout=TIMEOUT)
        if rank in ranks:
            tensor = torch.full((length,), float(rank))
            dist.all_reduce(tensor, group=group)
            assert torch.equal(tensor, torch.full_like(tensor, float(sum(ranks)))), (done, ranks, tensor)
            dist.destroy_process_group(group)
        del group  # torch 1.13 ends it with the last reference
        growth.after(done)


def training(rank, size, count):
    """Steps of DistributedDataParallel while the daemons are killed. The last line is a digest of the
    weights, which another run has as well. The number of the step stands in the file $PROGRESS of rank 0."""
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(SEED + rank)
    progress = os.open(os.environ["PROGRESS"] if rank == 0 else os.devnull, os.O_WRONLY | os.O_CREAT, 0o600)
    print("begun", flush=True)
    for step in range(count):
        os.pwrite(progress, b"%20d" % step, 0)
        inputs = torch.randn(16, 64, generator=generator)
        loss = (parallel(inputs) - inputs[:, :8]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    same = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(same, weights)
    assert all(torch.equal(weights, other) for other in same), "the ranks have different weights"
    print(f"weights {weights.view(torch.int32).sum().item()}", flush=True)


def main():
    torch.set_num_threads(1)
    case, count = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("hdt", init_method=f"file://{os.environ['MEETING']}", timeout=TIMEOUT,
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    {"batches": batches, "groups": groups, "training": training}[case](
        dist.get_rank(), dist.get_world_size(), count)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
