// measure.cc: the measuring loop, and what each rank's buffers must hold after each collective.
#include "bench/commbench/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace hdt::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Element of the buffer at which rank `rank`'s own part starts, in place.
size_t own_part(const Row& row, const Shape& shape, int rank) {
  const bool parted = row.what == Collective::kReduceScatter || row.what == Collective::kAllGather;
  return parted ? static_cast<size_t>(rank) * shape.count : 0;
}

}  // namespace

Result<Measurer> Measurer::make(Communicator& communicator, Settings settings, size_t max_bytes) {
  Result<Buffer> send = Buffer::make(communicator, max_bytes);
  if (!send.is_ok()) return send.status();
  Result<Buffer> recv = Buffer::make(communicator, max_bytes);
  if (!recv.is_ok()) return recv.status();
  return Measurer(communicator, settings, send.take(), recv.take());
}

Result<RowResult> Measurer::measure(const Row& row, Pattern& pattern) {
  RowResult result{row, shape_of(row, communicator_->ranks()), {}, std::nullopt};
  Result<Measurement> out = measure_placement(row, result.shape, Placement::kOutOfPlace, pattern);
  if (!out.is_ok()) return out.status();
  result.out_of_place = out.take();
  if (has_in_place(row.what)) {
    Result<Measurement> in = measure_placement(row, result.shape, Placement::kInPlace, pattern);
    if (!in.is_ok()) return in.status();
    result.in_place = in.take();
  }
  return result;
}

Result<Measurement> Measurer::measure_placement(const Row& row, const Shape& shape, Placement placement,
                                                Pattern& pattern) {
  load(row, shape, placement, pattern);
  if (placement == Placement::kInPlace) recv_.zero();
  for (int i = 0; i < settings_.warm_up; ++i) HDT_RETURN_IF_ERROR(run(row, shape, placement));
  if (placement == Placement::kOutOfPlace) load(row, shape, placement, pattern);
  HDT_RETURN_IF_ERROR(communicator_->barrier());

  std::vector<double> times;
  for (int i = 0; i < settings_.iterations; ++i) {
    const auto start = Clock::now();
    HDT_RETURN_IF_ERROR(run(row, shape, placement));
    times.push_back(microseconds(Clock::now() - start));
  }

  const auto ranks = static_cast<size_t>(communicator_->ranks());
  std::vector<double> everyones(times.size() * ranks);
  HDT_RETURN_IF_ERROR(
      communicator_->gather_all(times.data(), times.size() * sizeof(double), everyones.data()));
  for (size_t i = 0; i < everyones.size(); ++i) {
    double& slowest = times[i % times.size()];
    slowest = std::max(slowest, everyones[i]);
  }
  Measurement measurement{summarise(times, shape.bytes, bus_factor(row.what, communicator_->ranks())),
                          std::nullopt};

  if (settings_.check) {
    if (placement == Placement::kInPlace) {
      load(row, shape, placement, pattern);
      HDT_RETURN_IF_ERROR(run(row, shape, placement));
    }
    const int64_t here = verify(row, shape, placement, pattern);
    wrong_here_ += here;
    std::vector<int64_t> counts(ranks);
    HDT_RETURN_IF_ERROR(communicator_->gather_all(&here, sizeof here, counts.data()));
    int64_t wrong = 0;
    for (int64_t count : counts) wrong += count;
    measurement.wrong = std::max(wrong, here);
  }
  return measurement;
}

Status Measurer::run(const Row& row, const Shape& shape, Placement placement) {
  const size_t own = own_part(row, shape, communicator_->rank()) * element_bytes(row.type);
  const std::byte* send = send_.data();
  std::byte* recv = recv_.data();
  if (placement == Placement::kInPlace) {
    send = recv_.data();
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

int64_t Measurer::verify(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const {
  size_t wrong = recv_.count_broken_guards();
  if (placement == Placement::kOutOfPlace) {
    wrong += send_.count_broken_guards();
    wrong += pattern.contribution(communicator_->rank()).count_wrong(send_.data(), 0, shape.send_elements);
  }
  return static_cast<int64_t>(wrong) + verify_received(row, shape, placement, pattern);
}

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
      // In place the other ranks' parts are only read.
      for (int part = 0; in_place && part < ranks; ++part) {
        const size_t first = static_cast<size_t>(part) * count;
        if (part != rank)
          wrong += pattern.contribution(rank).count_wrong(got + first * element, first, count);
      }
      wrong +=
          pattern.reduced().count_wrong(in_place ? got + static_cast<size_t>(rank) * count * element : got,
                                        static_cast<size_t>(rank) * count, count);
      break;
    case Collective::kAllGather:
      for (int part = 0; part < ranks; ++part) {
        wrong += pattern.contribution(part).count_wrong(got + static_cast<size_t>(part) * count * element, 0,
                                                        count);
      }
      break;
    case Collective::kBroadcast:
      wrong = pattern.contribution(row.root).count_wrong(got, 0, count);
      break;
    case Collective::kSendRecv:
      wrong = pattern.contribution((rank + ranks - 1) % ranks).count_wrong(got, 0, count);
      break;
  }
  return static_cast<int64_t>(wrong);
}

}  // namespace hdt::bench
