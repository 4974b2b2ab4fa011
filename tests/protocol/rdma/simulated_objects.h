// simulated_objects.h: what SimulatedVerbs makes: each begins with the library's structure, so that pointers
// to it are handles.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/protocol/rdma/simulated_verbs.h"

namespace hdt::transport::rdma {

template <typename Item>
class Signalled {
 public:
  Signalled() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  Signalled(const Signalled&) = delete;
  Signalled& operator=(const Signalled&) = delete;
  ~Signalled() { ::close(fd_); }
  int fd() const { return fd_; }
  void push(const Item& item) {
    items_.push_back(item);
    ::eventfd_write(fd_, 1);
  }
  bool pop(Item& item) {
    if (items_.empty()) return false;
    item = items_.front();
    items_.pop_front();
    if (items_.empty()) clear();
    return true;
  }
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(items_, predicate);
    if (items_.empty()) clear();
  }

 private:
  void clear() {
    eventfd_t value = 0;
    ::eventfd_read(fd_, &value);
  }
  int fd_;
  std::deque<Item> items_;
};

struct SimulatedVerbs::Context {
  ibv_context handle{};
  std::string name;
  Signalled<AsyncEvent> events;
};

struct SimulatedVerbs::Region {
  ibv_mr handle{};
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t iova = 0;
  unsigned access = 0;
};

struct SimulatedVerbs::CompletionChannel {
  ibv_comp_channel handle{};
  Signalled<int> events;
};

struct SimulatedVerbs::Queue {
  ibv_cq handle{};
  size_t entries = 0;
  CompletionChannel* channel = nullptr;
  bool armed = false;
  std::deque<ibv_wc> completions;
};

struct SimulatedVerbs::Pair {
  ibv_qp handle{};
  Context* context = nullptr;
  Queue* queue = nullptr;
  ibv_qp_state state = IBV_QPS_RESET;
  uint32_t inline_bytes = 0;
  size_t send_requests = 0;
  uint32_t peer = 0;
  unsigned access = 0;
  std::deque<Request> requests;
  std::deque<std::pair<uint64_t, ibv_sge>> receives;
};

struct SimulatedVerbs::Channel {
  rdma_event_channel handle{};
  Signalled<CmEvent> events;
};

struct SimulatedVerbs::Id {
  rdma_cm_id handle{};
  Channel* channel = nullptr;
  std::string device;
  bool listens = false;
  bool connected = false;
  Id* peer = nullptr;
  uint32_t qp_number = 0;
};

}  // namespace hdt::transport::rdma
