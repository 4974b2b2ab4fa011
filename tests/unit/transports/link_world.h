// link_world.h: two engines on a FakeNetwork, with one link of several rails between them, driven by one
// thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "transports/fake/network.h"
#include "transports/link/link.h"
#include "transports/link/rail.h"

namespace hdt::transport {

inline LinkHeader header_of(uint64_t value) {
  LinkHeader header{};
  std::memcpy(header.data(), &value, sizeof value);
  return header;
}

inline uint64_t value_of(const LinkHeader& header) {
  uint64_t value = 0;
  std::memcpy(&value, header.data(), sizeof value);
  return value;
}

// As whom both sides are admitted.
inline constexpr PeerName kLinkPeer{{std::byte{7}}};

struct Arrival {
  uint64_t value;
  uint64_t bytes;
};

// One engine: devices, connections, the link, and everything it was told.
class Side : public LinkObserver {
 public:
  explicit Side(LinkOptions options) : link(*this, std::move(options)) {}

  void on_sent(Link&, uint64_t token) override {
    EXPECT_FALSE(down.has_value());
    sent.push_back(token);
    if (when_sent) when_sent(token);
  }
  void on_arrived(Link& from, const LinkHeader& header, uint64_t bytes) override {
    EXPECT_FALSE(down.has_value());
    arrived.push_back({value_of(header), bytes});
    if (when_arrived) when_arrived(from, value_of(header));
  }
  void on_message(Link&, std::span<const std::byte> message) override {
    EXPECT_FALSE(down.has_value());
    messages.emplace_back(message.begin(), message.end());
  }
  void on_rail_up(Link&, const Connection&, const RailStatus&) override { ++rails_up; }
  void on_rail_down(Link&, const Connection&, const RailStatus&, const std::string& lost) override {
    --rails_up;
    losses.push_back(lost);
  }
  void on_down(Link&, const Status& reason) override {
    EXPECT_FALSE(down.has_value()) << "on_down is the last call";
    down = reason;
  }

  void open_devices(Backend& backend, char letter, int count) {
    for (int i = 0; i < count; ++i) {
      DeviceInfo info;
      info.name = letter + std::to_string(i);
      info.address = info.name;
      devices.push_back(backend.open(info).take());
    }
  }

  // Memory that the other side may write to.
  RegionKey enlist(void* base, size_t bytes) const {
    const RegionKey key = devices[0]->register_memory(base, bytes, -1).take();
    EXPECT_TRUE(devices[0]->grant(key, kLinkPeer).is_ok());
    return key;
  }

  void poll() {
    for (const auto& device : devices) {
      std::vector<Completion> completions;
      device->poll(completions);
      for (const Completion& completion : completions) {
        if (completion.kind == Completion::Kind::kAccepted) accepted.push_back(completion.connection);
        link.on_completion(completion);
        if (completion.kind != Completion::Kind::kClosed) continue;
        device->release(completion.connection);
        ++released;
      }
      link.flush();
    }
    if (link.next_time() <= now) link.on_time();
  }

  Link link;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Connection*> accepted;
  size_t released = 0;
  int rails_up = 0;
  std::vector<std::string> losses;  // of rails that went down, in order; "": with the link
  std::vector<uint64_t> sent;
  std::vector<Arrival> arrived;
  std::vector<std::vector<std::byte>> messages;
  std::optional<Status> down;
  std::function<void(Link&, uint64_t)> when_arrived;
  std::function<void(uint64_t)> when_sent;
  int64_t now = 0;
};

class LinkWorld {
 public:
  // A poll of both sides takes this long in their time.
  static constexpr int64_t kPollNs = 100 * kNsPerUs;

  LinkWorld(uint64_t seed, int rail_count, LinkOptions options = {.fragment_bytes = kMinFragmentBytes})
      : network(seed), a(with_clock(options)), b(with_clock(options)), rails_(rail_count) {
    const std::unique_ptr<Backend> backend = network.make_backend();
    a.open_devices(*backend, 'a', rail_count);
    b.open_devices(*backend, 'b', rail_count);
  }

  // Connects a's device i to b's device i and makes the connections rails of both links.
  void connect() {
    for (int i = 0; i < rails_; ++i) {
      addresses.push_back(b.devices[i]->listen(0).take());
      connect(i);
    }
  }

  // Connects devices i (again).
  void connect(int i) {
    clients.push_back(a.devices[i]->connect(addresses[i], 1000).take());
    b.accepted.clear();
    poll();
    ASSERT_EQ(b.accepted.size(), 1u);
    servers.push_back(b.accepted.front());
    EXPECT_TRUE(clients.back()->admit(kLinkPeer).is_ok());
    EXPECT_TRUE(servers.back()->admit(kLinkPeer).is_ok());
    b.link.add_rail(servers.back(), lane(*b.devices[i], *servers.back()));
    a.link.add_rail(clients.back(), lane(*a.devices[i], *clients.back()));
  }

  // A part in the NIC of one more rail between the same two.
  std::unique_ptr<NicShare::Lane> lane(const Device& device, const Connection& connection) {
    auto made = std::make_unique<NicShare::Lane>(nics[device.info().name], "class", now);
    made->leads_to(host_of(connection.remote_address()));
    return made;
  }

  bool wait_for_rails(int count) {
    return run_until([&] { return a.rails_up == count && b.rails_up == count; });
  }

  void poll() {
    now += kPollNs;
    a.now = b.now = now;
    a.poll();
    b.poll();
  }

  // Time is counted in polls here: a limit in polls is a deadline.
  bool run_until(const std::function<bool()>& done) {
    constexpr int kMostPolls = 200'000;
    for (int i = 0; i < kMostPolls; ++i) {
      if (done()) return true;
      poll();
    }
    return done();
  }

  LinkOptions with_clock(LinkOptions options) {
    options.now = [this] { return now; };
    return options;
  }

  int64_t now = 0;
  fake::FakeNetwork network;
  std::map<std::string, NicShare> nics;
  Side a;
  Side b;
  std::vector<Connection*> clients;
  std::vector<Connection*> servers;
  std::vector<std::string> addresses;

 private:
  int rails_;
};

}  // namespace hdt::transport
