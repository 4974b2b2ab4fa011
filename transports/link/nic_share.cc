// nic_share.cc: see nic_share.h.
#include "transports/link/nic_share.h"

#include <algorithm>

namespace hdt::transport {

namespace {

// A class that has been silent for so long does not slow others down.
constexpr int64_t kRememberedNs = 200'000'000;
// What a rail on which nothing moves has under way is not on the NIC: its peer does not take it. Where
// acknowledgements stand in a long queue nothing is seen to move for as long as that.
constexpr int64_t kStuckNs = 20'000'000;
constexpr int64_t kStuckRounds = 2;
// Below so much under way the time to an acknowledgement says nothing of the NIC's rate.
constexpr uint64_t kTellingBytes = 32 << 10;
// A class that had nothing to send for a moment, as between two operations, may make up for so much time.
constexpr double kCatchUpNs = 20e6;

}  // namespace

NicShare::Lane::Lane(NicShare& nic, const std::string& group_class, int64_t now)
    : nic_(nic), flow_(nic.flows_[group_class]), moved_ns_(now) {
  ++flow_.lanes;
  nic_.lanes_.push_back(this);
}

NicShare::Lane::~Lane() {
  --flow_.lanes;
  std::erase(nic_.lanes_, this);
}

bool NicShare::Lane::shared(int64_t now) const {
  return std::any_of(nic_.flows_.begin(), nic_.flows_.end(), [&](const auto& entry) {
    const Flow& other = entry.second;
    return &other != &flow_ && other.lanes > 0 &&
           (other.policy.latency || now - other.used_ns < kRememberedNs);
  });
}

bool NicShare::Lane::admits(int64_t now) {
  if (flow_.policy.latency || !shared(now)) return true;
  const uint64_t under_way = nic_.in_flight(now);
  const uint64_t times = nic_.held_back(now);
  // Beside a latency class nothing for the time that acknowledgements take: its messages would wait for it
  // (p99 5 instead of 2.7 ms).
  const uint64_t window = window_of(nic_.meter_.best_ns_per_byte(), times == 1 ? rest_ns_ : 0, times);
  bool turn = under_way == 0 || under_way < window;
  for (const auto& [name, other] : nic_.flows_) {
    if (&other == &flow_ || !other.waiting) continue;
    if (other.policy.latency || nic_.start_of(other) < nic_.start_of(flow_)) turn = false;
  }
  if (!turn) {
    flow_.waiting = true;
    flow_.used_ns = now;  // or who has the NIC would never learn that it is not alone
  }
  return turn;
}

void NicShare::Lane::handed_over(uint64_t bytes, int64_t now) {
  if (in_flight_ == 0) moved_ns_ = now;
  in_flight_ += bytes;
  flow_.used_ns = now;
  if (flow_.policy.latency) return;
  flow_.virtual_bytes = nic_.start_of(flow_);
  nic_.now_served_ = std::max(nic_.now_served_, flow_.virtual_bytes);
  flow_.virtual_bytes += static_cast<double>(bytes) / flow_.policy.weight;
}

void NicShare::Lane::acknowledged(uint64_t bytes, int64_t since, int64_t rest_ns, int64_t now) {
  rest_ns_ = rest_ns;
  nic_.round_ns_ = now - since;
  if (nic_.in_flight(now) >= kTellingBytes) nic_.meter_.acknowledged(bytes, since, now);
  moved_ns_ = now;
}

bool NicShare::Lane::others_move(int64_t since) const {
  return std::any_of(nic_.lanes_.begin(), nic_.lanes_.end(), [&](const Lane* other) {
    return other != this && other->peer_ == peer_ && other->progressed_ns_ >= since;
  });
}

void NicShare::forget_wishes() {
  for (auto& [name, flow] : flows_) flow.waiting = false;
}

bool NicShare::anyone_waits() const {
  return std::any_of(flows_.begin(), flows_.end(), [](const auto& entry) { return entry.second.waiting; });
}

uint64_t NicShare::in_flight(int64_t now) const {
  uint64_t sum = 0;
  const int64_t stuck_ns = std::max(kStuckNs, kStuckRounds * round_ns_);
  for (const Lane* lane : lanes_) {
    if (now - lane->moved_ns_ < stuck_ns) sum += lane->in_flight_;
  }
  return sum;
}

// How many times less bulk may have under way than alone. What it has is what a message of a latency class
// waits for: where there are such messages, little more than the chunk that is being sent.
uint64_t NicShare::held_back(int64_t now) const {
  uint64_t times = 1;
  for (const auto& [name, flow] : flows_) {
    if (!flow.policy.latency || flow.lanes == 0) continue;
    times = std::max<uint64_t>(times, now - flow.used_ns < kRememberedNs ? 4 : 2);
  }
  return times;
}

// Where its next chunk begins. Who comes back after a pause is not owed what it did not want.
double NicShare::start_of(const Flow& flow) const {
  double weights = 0;
  for (const auto& [name, other] : flows_) {
    if (other.lanes > 0 && !other.policy.latency) weights += other.policy.weight;
  }
  const double rate = meter_.ns_per_byte();
  const double owed = rate == 0 || weights == 0 ? 0 : kCatchUpNs / rate / weights;
  return std::max(flow.virtual_bytes, now_served_ - owed);
}

}  // namespace hdt::transport
