// nic_share.cc: which class may use a NIC (see nic_share.h).
//
// Virtual time is counted in bytes divided by weight. A flow's fragment begins at start_of(), and ends at its
// start plus its bytes by weight. The waiting flow with the minimum start goes next. A flow of twice the
// weight moves on half as fast in virtual time, so it sends twice the bytes.
#include "transports/link/nic_share.h"

#include <algorithm>

#include "base/crc32c.h"

namespace hdt::transport {

namespace {

// A class that has not used the NIC for this long does not hold others back.
constexpr int64_t kRememberedNs = 200'000'000;
// Data that a rail has under way does not count if nothing has moved on it for this long, or for two rounds
// if they take longer: it is not on the NIC, because the peer does not take it. Where acknowledgements wait
// in a long queue, nothing is seen to move for a round.
constexpr int64_t kStuckNs = 20'000'000;
constexpr int64_t kStuckRounds = 2;
// With less under way the time to an acknowledgement says nothing about the NIC's rate.
constexpr uint64_t kTellingBytes = 32 << 10;
// A class that had nothing to send for a moment, such as between two operations, may make up for this much of
// the NIC's time.
constexpr double kCatchUpNs = 20e6;
// Between two looks at the use of a NIC. An operation's gaps are shorter.
constexpr int64_t kUseLookNs = 200'000'000;

}  // namespace

double NicShare::Flow::patience_of(const std::string& group_class) {
  constexpr uint32_t kSteps = 1 << 16;
  return 1 + static_cast<double>(crc32c(group_class) % kSteps) / kSteps;
}

NicShare::Lane::Lane(NicShare& nic, const std::string& group_class, int64_t now)
    : nic_(nic), flow_(nic.flow(group_class)), moved_ns_(now) {
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
  // 1. Latency classes go at once. A class that is alone on the NIC has its rails' own windows only.
  if (flow_.policy.latency || !shared(now)) return true;
  // 2. All classes together have one window on the NIC.
  const uint64_t under_way = nic_.in_flight(now);
  const uint64_t times = nic_.held_back(now);
  // Beside a latency class nothing is added for the time of an acknowledgement: messages of that class
  // would wait behind it (p99 of 5 ms instead of 2.7 ms).
  const uint64_t window = window_of(nic_.meter_.best_ns_per_byte(), times == 1 ? rest_ns_ : 0, times);
  bool turn = under_way == 0 || under_way < window;
  // 3. A waiting latency class goes first, and so does a waiting bulk class whose fragment begins earlier.
  for (const auto& [name, other] : nic_.flows_) {
    if (&other == &flow_ || !other.waiting) continue;
    if (other.policy.latency || nic_.start_of(other) < nic_.start_of(flow_)) turn = false;
  }
  if (!turn) {
    flow_.waiting = true;
    flow_.used_ns = now;  // otherwise the class that has the NIC would never see that it is shared
  }
  return turn;
}

// Bytes of latency classes take no virtual time: they are not weighed against bulk.
void NicShare::Lane::handed_over(uint64_t bytes, int64_t now) {
  if (in_flight_ == 0) moved_ns_ = now;
  in_flight_ += bytes;
  flow_.used_ns = now;
  flow_.sent += bytes;
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

double NicShare::Lane::part(int64_t now) {
  nic_.look_at_use(now);
  return flow_.policy.latency ? 1 : flow_.watch.part();
}

// The two directions of a NIC do not disturb each other, so the busier one counts. A NIC whose rate is not
// known was never busy.
void NicShare::look_at_use(int64_t now) {
  if (looked_ns_ == 0) looked_ns_ = now;
  const int64_t since = looked_ns_;
  if (now - since < kUseLookNs) return;
  looked_ns_ = now;
  for (auto& [name, flow] : flows_) {
    const auto bytes = static_cast<double>(std::max(flow.sent, flow.received));
    flow.sent = flow.received = 0;
    flow.use = std::min(1.0, bytes * meter_.best_ns_per_byte() / static_cast<double>(now - since));
  }
  for (auto& [name, flow] : flows_) flow.watch.look(left_for(flow), since, now);
}

// Latency classes take what they want, and bulk shares the rest. A class that uses less than its weight gives
// it leaves the difference to the others.
double NicShare::left_for(const Flow& flow) const {
  double rest = 1;
  double used = 0;
  double weights = flow.policy.weight;
  for (const auto& [name, other] : flows_) {
    if (&other == &flow || other.use == 0) continue;
    if (other.policy.latency) {
      rest -= other.use;
    } else {
      used += other.use;
      weights += other.policy.weight;
    }
  }
  return std::max({0.0, rest - used, rest * flow.policy.weight / weights});
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

// A message of a latency class waits for what bulk has under way. So bulk's window is half as long where a
// latency class has a rail on the NIC, and a quarter while one uses it: little more than the fragment that is
// being sent.
uint64_t NicShare::held_back(int64_t now) const {
  uint64_t times = 1;
  for (const auto& [name, flow] : flows_) {
    if (!flow.policy.latency || flow.lanes == 0) continue;
    times = std::max<uint64_t>(times, now - flow.used_ns < kRememberedNs ? 4 : 2);
  }
  return times;
}

// A flow continues where its latest fragment ended. After a pause it begins near the current virtual time
// instead: it may make up for kCatchUpNs of the NIC's time, shared by all weights, and not for all that it
// did not send.
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
