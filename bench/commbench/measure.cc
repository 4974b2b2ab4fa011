// measure.cc: the measuring loop of one engine, and what the buffers of each rank must hold after each
// collective.
#include "bench/commbench/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/commbench/element.h"

namespace hdt::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// In place, the element of the buffer at which the part of rank `rank` begins.
size_t own_part(const Row& row, const Shape& shape, int rank) {
  const bool parted = row.what == Collective::kReduceScatter || row.what == Collective::kAllGather;
  return parted ? static_cast<size_t>(rank) * shape.count : 0;
}

}  // namespace

Result<Measurer> Measurer::make(Communicator& communicator, Settings settings, size_t max_bytes,
                                pid_t daemon) {
  Result<Buffer> send = Buffer::make(communicator, max_bytes);
  if (!send.is_ok()) return send.status();
  Result<Buffer> recv = Buffer::make(communicator, max_bytes);
  if (!recv.is_ok()) return recv.status();
  return Measurer(communicator, settings, send.take(), recv.take(), daemon);
}

int64_t RowResult::wrong() const {
  return out_of_place.wrong.value_or(0) + (in_place ? in_place->wrong.value_or(0) : 0);
}

Result<RowResult> Measurer::measure(const Row& row, Pattern& pattern) {
  // A copy, which shares the buffers. The count of wrong elements is taken back.
  std::vector<Measurer> alone{*this};
  Result<std::vector<RowResult>> results = measure_in_turn(alone, 0, 1, row, pattern);
  wrong_here_ = alone[0].wrong_here_;
  if (!results.is_ok()) return results.status();
  return results.value()[0];
}

std::string Measurer::lacks(const Row& row) const {
  if (reduces(row.what) && is_bitwise(row.op) && !is_integer(row.type)) {
    return std::string("no ") + name_of(row.op) + " of " + name_of(row.type);
  }
  const Shape shape = shape_of(row, communicator_->ranks());
  return communicator_->lacks({row.what, nullptr, nullptr, shape.count, row.type, row.op, row.root});
}

Status Measurer::run_round(const Row& row, Placement placement, Pattern& pattern, Series& series) {
  const Shape shape = shape_of(row, communicator_->ranks());
  // Warm up. In place on zeros, as the timed iterations; out of place the data is loaded again, so that
  // what the warm-up has written cannot pass for a result.
  load(row, shape, placement, pattern);
  if (placement == Placement::kInPlace) recv_.zero();
  for (int i = 0; i < settings_.warm_up; ++i) HDT_RETURN_IF_ERROR(run(row, shape, placement));
  if (placement == Placement::kOutOfPlace) load(row, shape, placement, pattern);
  HDT_RETURN_IF_ERROR(communicator_->barrier());

  std::vector<double> times;
  times.reserve(static_cast<size_t>(settings_.iterations) + 1);
  // Between the two barriers, so that no rank's reading falls into another rank's iterations.
  const ResourceUse before = meter_.read();
  HDT_RETURN_IF_ERROR(communicator_->barrier());
  // Iterations follow each other without a barrier, as in nccl-tests.
  for (int i = 0; i < settings_.iterations; ++i) {
    const auto start = Clock::now();
    HDT_RETURN_IF_ERROR(run(row, shape, placement));
    times.push_back(microseconds(Clock::now() - start));
  }
  const ResourceUse used = difference(before, meter_.read());

  // The time of an iteration is that of its slowest rank. The processor time is sent along as the last
  // column.
  const size_t iterations = times.size();
  times.push_back(used.cpu_s);
  std::vector<double> everyones(times.size() * static_cast<size_t>(communicator_->ranks()));
  HDT_RETURN_IF_ERROR(
      communicator_->gather_all(times.data(), times.size() * sizeof(double), everyones.data()));
  std::vector<double> slowest(iterations);
  for (size_t i = 0; i < everyones.size(); ++i) {
    const size_t column = i % times.size();
    if (column == iterations) {
      series.cpu_s += everyones[i];
    } else {
      slowest[column] = std::max(slowest[column], everyones[i]);
    }
  }
  series.round_p50_us.push_back(percentile(slowest, 50));
  series.times_us.insert(series.times_us.end(), slowest.begin(), slowest.end());
  for (const auto& [name, bytes] : used.sent_bytes) series.sent_bytes[name] += bytes;
  return Status::ok();
}

Result<Measurement> Measurer::conclude(const Row& row, Placement placement, Pattern& pattern,
                                       const Series& series) {
  const int ranks = communicator_->ranks();
  const Shape shape = shape_of(row, ranks);
  Measurement measurement;
  measurement.timing = summarise(series.times_us, shape.bytes, bus_factor(row.what, ranks));
  measurement.round_p50_us = series.round_p50_us;
  const auto iterations = static_cast<double>(series.times_us.size());
  // Bus traffic of all ranks and iterations, the base of cpu_s_per_gb.
  const double bus_gb =
      static_cast<double>(shape.bytes) * bus_factor(row.what, ranks) * ranks * iterations / 1e9;
  if (bus_gb > 0) measurement.cpu_s_per_gb = series.cpu_s / bus_gb;
  for (const auto& [name, bytes] : series.sent_bytes) {
    measurement.sent_bytes[name] = bytes / series.times_us.size();
  }
  if (!settings_.check || !moves_data(row.what) || !communicator_->makes_results()) return measurement;

  // The timed iterations have left zeros; run once more on data.
  if (placement == Placement::kInPlace) {
    load(row, shape, placement, pattern);
    HDT_RETURN_IF_ERROR(run(row, shape, placement));
  }
  const int64_t here = verify(row, shape, placement, pattern);
  wrong_here_ += here;
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  HDT_RETURN_IF_ERROR(communicator_->gather_all(&here, sizeof here, counts.data()));
  int64_t wrong = 0;
  for (int64_t count : counts) wrong += count;
  // The counts were gathered through the library that may be wrong itself, so at least what this rank
  // has seen counts.
  measurement.wrong = std::max(wrong, here);
  return measurement;
}

Status Measurer::run(const Row& row, const Shape& shape, Placement placement) {
  const size_t own = own_part(row, shape, communicator_->rank()) * element_bytes(row.type);
  const std::byte* send = send_.data();
  std::byte* recv = recv_.data();
  if (placement == Placement::kInPlace) {
    send = recv_.data();
    // As hdt.h has it: an allgather's input is the own part of the output, and a reduce-scatter's output
    // is the own part of the input.
    if (row.what == Collective::kAllGather) send += own;
    if (row.what == Collective::kReduceScatter) recv += own;
  }
  return communicator_->run({row.what, send, recv, shape.count, row.type, row.op, row.root});
}

void Measurer::load(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) {
  const int rank = communicator_->rank();
  const size_t element = element_bytes(row.type);
  const Sequence& own = pattern.contribution(rank);
  if (placement == Placement::kOutOfPlace) {
    send_.reset(shape.send_elements * element);
    own.fill(send_.data(), 0, shape.send_elements);
    recv_.reset(shape.recv_elements * element);
  } else {
    recv_.reset(shape.bytes);
    const size_t part = row.what == Collective::kAllGather ? own_part(row, shape, rank) : 0;
    own.fill(recv_.data() + part * element, 0, shape.send_elements);
  }
}

// Everything must be right: the guards, the send buffer, which no collective may change, and the
// received data.
int64_t Measurer::verify(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const {
  size_t wrong = recv_.count_broken_guards();
  if (placement == Placement::kOutOfPlace) {
    wrong += send_.count_broken_guards();
    wrong += pattern.contribution(communicator_->rank()).count_wrong(send_.data(), 0, shape.send_elements);
  }
  return static_cast<int64_t>(wrong) + verify_received(row, shape, placement, pattern);
}

// Compares the received data, by collective. Away from the root, a reduce or gather must leave the
// receive buffer alone.
int64_t Measurer::verify_received(const Row& row, const Shape& shape, Placement placement,
                                  Pattern& pattern) const {
  const int rank = communicator_->rank();
  const int ranks = communicator_->ranks();
  const size_t element = element_bytes(row.type);
  const size_t count = shape.count;
  const std::byte* got = recv_.data();
  const bool in_place = placement == Placement::kInPlace;
  size_t wrong = 0;
  switch (row.what) {
    case Collective::kAllReduce:
      wrong = pattern.reduced().count_wrong(got, 0, count);
      break;
    case Collective::kReduce:
      if (rank == row.root) {
        wrong = pattern.reduced().count_wrong(got, 0, count);
      } else {
        wrong = in_place ? pattern.contribution(rank).count_wrong(got, 0, count)
                         : recv_.count_touched(0, count, element);
      }
      break;
    case Collective::kReduceScatter:
      wrong = static_cast<size_t>(verify_scattered(shape, element, in_place, pattern));
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      if (row.what == Collective::kGather && rank != row.root) {
        wrong = recv_.count_touched(0, shape.recv_elements, element);
        break;
      }
      for (int part = 0; part < ranks; ++part) {
        wrong += pattern.contribution(part).count_wrong(got + static_cast<size_t>(part) * count * element, 0,
                                                        count);
      }
      break;
    case Collective::kAllToAll:
      for (int part = 0; part < ranks; ++part) {
        wrong += pattern.contribution(part).count_wrong(got + static_cast<size_t>(part) * count * element,
                                                        static_cast<size_t>(rank) * count, count);
      }
      break;
    case Collective::kScatter:
      wrong = pattern.contribution(row.root).count_wrong(got, static_cast<size_t>(rank) * count, count);
      break;
    case Collective::kBroadcast:
      wrong = pattern.contribution(row.root).count_wrong(got, 0, count);
      break;
    case Collective::kBarrier:
      break;
    case Collective::kSendRecv:
      wrong = pattern.contribution((rank + ranks - 1) % ranks).count_wrong(got, 0, count);
      break;
  }
  return static_cast<int64_t>(wrong);
}

// In place, hdt.h's result is in the own part, and the other parts are as they were.
int64_t Measurer::verify_scattered(const Shape& shape, size_t element, bool in_place,
                                   Pattern& pattern) const {
  const int rank = communicator_->rank();
  const size_t own = static_cast<size_t>(rank) * shape.count;
  const std::byte* got = recv_.data();
  if (!in_place || communicator_->scatters_to_start()) {
    return static_cast<int64_t>(pattern.reduced().count_wrong(got, own, shape.count));
  }
  size_t wrong = pattern.reduced().count_wrong(got + own * element, own, shape.count);
  for (int part = 0; part < communicator_->ranks(); ++part) {  // the other ranks' parts are only read
    const size_t first = static_cast<size_t>(part) * shape.count;
    if (part != rank)
      wrong += pattern.contribution(rank).count_wrong(got + first * element, first, shape.count);
  }
  return static_cast<int64_t>(wrong);
}

}  // namespace hdt::bench
