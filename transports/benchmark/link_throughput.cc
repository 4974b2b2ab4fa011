// link_throughput.cc: measures what a link costs. link_write sends messages of one size over a link with one
// TCP rail on loopback, with one thread a side. plain_socket moves the same bytes in the same way over a
// blocking socket. Compare bytes_per_second of the two for each size. In both, one message is under way at a
// time, and the receiver answers each.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "transports/link/link.h"

namespace {

using namespace hdt::transport;  // NOLINT(google-build-using-namespace)

constexpr int kWaitMs = 1000;

// The other side of a benchmark, on a thread of its own. The thread ends with this object, also where this
// side throws: `end` is called first, and must let `body` return.
class OtherSide {
 public:
  OtherSide(std::function<void()> body, std::function<void()> end) : end_(std::move(end)) {
    auto thread = hdt::start_thread("other-side", [this, body = std::move(body)] {
      try {
        body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "the other side: %s\n", error.what());
      }
      ended_ = true;
    });
    if (!thread.is_ok()) throw std::runtime_error(thread.status().message());
    thread_ = thread.take();
  }
  ~OtherSide() { join(); }
  OtherSide(const OtherSide&) = delete;
  OtherSide& operator=(const OtherSide&) = delete;

  void join() {
    if (!thread_.joinable()) return;
    end_();
    thread_.join();
  }
  bool ended() const { return ended_; }

 private:
  const std::function<void()> end_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// The identity under which each engine admits the other one, and grants memory to it.
constexpr PeerName kOther{{std::byte{1}}};

// The work of the daemon's engine, for one device and one link: it polls the device, sleeps on its descriptor
// when there is nothing to do, and passes completions to the link. Used by one thread.
class Engine : public LinkObserver {
 public:
  explicit Engine(const char* address) {
    DeviceInfo info;
    info.name = "lo";
    info.address = address;
    auto opened = backend_->open(info);
    if (!opened.is_ok()) throw std::runtime_error(opened.status().to_string());
    device = opened.take();
  }
  void on_sent(Link&, uint64_t) override { ++sent; }
  void on_arrived(Link&, const LinkHeader&, uint64_t) override { ++arrived; }
  void on_message(Link&, std::span<const std::byte>) override {}
  void on_down(Link&, const hdt::Status&) override { down = true; }

  void step() {
    if (!device->poll(completions_)) {
      pollfd wait{device->event_fd(), POLLIN, 0};
      ::poll(&wait, 1, kWaitMs);
      return;
    }
    for (const Completion& completion : completions_) {
      if (completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted) {
        if (!completion.connection->admit(kOther).is_ok()) throw std::runtime_error("not admitted");
      }
      if (completion.kind == Completion::Kind::kReady) link.add_rail(completion.connection);
      link.on_completion(completion);
    }
    link.flush();
    completions_.clear();
  }

 private:
  std::unique_ptr<Backend> backend_ = make_tcp_backend();
  std::vector<Completion> completions_;

 public:
  std::unique_ptr<Device> device;
  Link link{*this};
  uint64_t sent = 0;
  uint64_t arrived = 0;
  bool down = false;
};

// An iteration is one write and the answer to it.
void link_write(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> region(bytes);
  Engine sender("127.0.1.1");
  Engine receiver("127.0.1.2");
  const std::string address = receiver.device->listen(0).take();
  const RegionKey key = receiver.device->register_memory(region.data(), bytes, -1).take();
  if (!receiver.device->grant(key, kOther).is_ok()) throw std::runtime_error("not granted");
  if (!sender.device->connect(address, kWaitMs).is_ok()) throw std::runtime_error("cannot connect");

  // The receiver answers every message with an empty write, which ends the sender's iteration. Only its
  // thread uses `receiver` from here until it is joined.
  std::atomic<bool> stop = false;
  OtherSide other(
      [&] {
        uint64_t answered = 0;
        while (!receiver.down && !stop) {
          receiver.step();
          for (; answered < receiver.arrived; ++answered) {
            if (!receiver.link.write({}).is_ok()) return;
          }
        }
      },
      [&] { stop = true; });
  for (auto _ : state) {
    const uint64_t before = sender.arrived;
    if (!sender.link.write({source.data(), bytes, key, 0, {}, 1}).is_ok())
      state.SkipWithError("the link is down");
    while (sender.arrived == before && !sender.down) {
      if (other.ended()) throw std::runtime_error("the other side has ended");
      sender.step();
    }
  }
  sender.link.close({hdt::Code::kAborted, "done"});
  while (!sender.down) sender.step();
  other.join();
  if (region != source) state.SkipWithError("wrong bytes arrived");
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

// Sends or receives all of the bytes. False at the end of the connection or on an error.
bool move_all(bool sending, int fd, std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = sending ? ::send(fd, data + done, bytes - done, MSG_NOSIGNAL)
                              : ::recv(fd, data + done, bytes - done, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// The same exchange without HDT: a message there, one byte back.
void plain_socket(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> target(bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.1.2", &address.sin_addr);
  socklen_t length = sizeof address;
  const hdt::UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  const hdt::UniqueFd sender(::socket(AF_INET, SOCK_STREAM, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("cannot listen");
  }
  if (::connect(sender.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw std::runtime_error("cannot connect");
  const hdt::UniqueFd receiver(::accept(listener.get(), nullptr, nullptr));
  std::byte acknowledgement{1};
  OtherSide other(
      [&] {
        while (move_all(false, receiver.get(), target.data(), bytes) &&
               move_all(true, receiver.get(), &acknowledgement, 1)) {
        }
      },
      [&] { ::shutdown(sender.get(), SHUT_RDWR); });
  std::byte answer{};
  for (auto _ : state) {
    if (!move_all(true, sender.get(), source.data(), bytes) || !move_all(false, sender.get(), &answer, 1)) {
      state.SkipWithError("the socket closed");
    }
  }
  other.join();
  if (target != source) state.SkipWithError("wrong bytes arrived");
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

// From large messages, where copying counts, to small ones, where the round trip does. Time is real time: two
// threads work.
BENCHMARK(plain_socket)->Arg(64 << 20)->Arg(1 << 20)->Arg(64 << 10)->Arg(8)->UseRealTime();
BENCHMARK(link_write)->Arg(64 << 20)->Arg(1 << 20)->Arg(64 << 10)->Arg(8)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
