// pairing.cc: connects two devices of this process, sends one message from one to the other, and closes
// the connection in order. A pair that can do that can be tested.
#include "tools/hdt-backend-test/pairing.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/join.h"

namespace hdt::backend_test {

namespace {

using transport::Backend;
using transport::Completion;
using transport::Connection;
using transport::Device;
using transport::DeviceInfo;
using Clock = std::chrono::steady_clock;

// One trial ends after kTrySeconds. After kPairingSeconds no further one begins, so 80 s is the limit of
// both together.
constexpr std::chrono::seconds kTrySeconds{20};
constexpr std::chrono::seconds kPairingSeconds{60};
constexpr int kSleepMs = 100;

// The name under which both ends admit their peer. Both ends are in this process, so there is nobody to
// tell apart.
constexpr transport::PeerName kAnybody{{std::byte{1}}};

// One end of the trial, and what its device has reported so far.
struct End {
  std::unique_ptr<Device> device;
  const Connection* closed = nullptr;
  // Why the connection was closed.
  Status reason;
  bool connected = false;
  bool ready = false;
  bool message = false;

  // Takes all completions of the device.
  void poll() {
    std::vector<Completion> completions;
    device->poll(completions);
    for (const Completion& completion : completions) {
      connected = connected || completion.kind == Completion::Kind::kConnected;
      const bool met =
          completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted;
      // If admitting fails, the connection never becomes ready, and the trial ends at its deadline.
      if (met) (void)completion.connection->admit(kAnybody);
      ready = ready || completion.kind == Completion::Kind::kReady;
      message = message || completion.kind == Completion::Kind::kMessage;
      if (completion.kind != Completion::Kind::kClosed) continue;
      closed = completion.connection;
      reason = completion.error;
    }
  }
};

Result<std::unique_ptr<Device>> open(Backend& backend, const DeviceInfo& nic) {
  auto device = backend.open(nic);
  if (device.is_ok()) return device;
  return Status(device.status().code(), "cannot open " + describe(nic) + ": " + device.status().message());
}

// Sends a message from `from` to `to`, as the suite's tests begin. Ok if it has arrived.
//
// 1. Open both devices; `to` listens and `from` connects.
// 2. When the client's connection is ready, it sends.
// 3. When the server has the message, the client closes the connection.
// 4. When both ends have seen the close, the trial has succeeded.
Status try_pair(Backend& backend, const DeviceInfo& from, const DeviceInfo& to) {
  std::array<End, 2> ends;
  for (const auto& [end, nic] : {std::pair(&ends[0], &from), std::pair(&ends[1], &to)}) {
    auto device = open(backend, *nic);
    if (!device.is_ok()) return device.status();
    end->device = device.take();
  }
  auto& [client, server] = ends;
  const auto address = server.device->listen(0);
  if (!address.is_ok()) {
    return {address.status().code(), "cannot listen on " + describe(to) + ": " + address.status().message()};
  }
  // The deadline counts from here for connecting, sending and closing together.
  const auto deadline = Clock::now() + kTrySeconds;
  auto connection = client.device->connect(
      address.value(), std::chrono::duration_cast<std::chrono::milliseconds>(kTrySeconds).count());
  if (!connection.is_ok()) return connection.status();
  bool sent = false;
  bool closing = false;
  while (Clock::now() < deadline) {
    for (End& end : ends) end.poll();
    // Both ends must be closed in order before their devices are destroyed: UCX may not close an
    // endpoint that is still being set up.
    if (server.message && !closing) {
      connection.value()->close();
      closing = true;
    }
    if (closing && client.closed != nullptr && server.closed != nullptr) return Status::ok();
    // A close that was not asked for: the connection could not be made, or was refused.
    if (client.closed != nullptr && !closing) {
      return {Code::kLink, client.reason.is_ok() ? "the connection was closed" : client.reason.message()};
    }
    if (client.ready && !sent) {
      const std::array<std::byte, 1> word{};
      HDT_RETURN_IF_ERROR(connection.value()->send(word, 0));
      sent = true;
    }
    // Sleep until either device has something to report. The timeout covers backends whose progress
    // needs polling.
    std::array<pollfd, 2> waits{
        {{client.device->event_fd(), POLLIN, 0}, {server.device->event_fd(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), kSleepMs);
  }
  // The message has arrived; an end that is slow to close does not matter.
  if (closing) return Status::ok();
  return {Code::kTimeout, (client.connected ? "connected, but no message came through within "
                                            : "no connection came about within ") +
                              std::to_string(kTrySeconds.count()) + " s"};
}

bool is_loopback(const DeviceInfo& nic) {
  return nic.name == "lo" || nic.address.starts_with("127.") || nic.address == "::1";
}

// Indices into `nics`, in the order in which they are tried.
std::vector<std::pair<size_t, size_t>> pairs_to_try(const std::vector<DeviceInfo>& nics, bool also_alone) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t from = 0; from < nics.size(); ++from) {
    for (size_t to = 0; to < nics.size(); ++to) {
      if (from != to) pairs.emplace_back(from, to);
    }
  }
  // First in the order of the list, as --nic A,B is meant, then the other way round.
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return (a.first < a.second) > (b.first < b.second); });
  // A real NIC says more about a backend than loopback does, so loopback comes last.
  for (const bool loopback : {false, true}) {
    for (size_t alone = 0; alone < nics.size() && (also_alone || nics.size() == 1); ++alone) {
      if (is_loopback(nics[alone]) == loopback) pairs.emplace_back(alone, alone);
    }
  }
  return pairs;
}

}  // namespace

std::string describe(const DeviceInfo& nic) {
  return nic.name + " (" + nic.address + (nic.up ? ")" : ", down)");
}

Result<PairedNics> pair_nics(Backend& backend, const std::vector<DeviceInfo>& nics, bool also_alone) {
  std::vector<std::string> failed;
  const auto deadline = Clock::now() + kPairingSeconds;
  for (const auto& [from, to] : pairs_to_try(nics, also_alone)) {
    if (Clock::now() > deadline) {
      failed.push_back("gave up after " + std::to_string(kPairingSeconds.count()) + " s");
      break;
    }
    const Status tried = try_pair(backend, nics[from], nics[to]);
    if (tried.is_ok()) return PairedNics{nics[from], nics[to], failed};
    failed.push_back(describe(nics[from]) + " does not reach " +
                     (from == to ? "itself" : describe(nics[to])) + ": " + tried.message());
  }
  return Status(Code::kNoBackend, join(failed, "; "));
}

}  // namespace hdt::backend_test
