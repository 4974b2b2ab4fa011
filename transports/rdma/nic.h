// nic.h: an RDMA adapter, opened once per Backend: its context, its protection domain and its asynchronous
// events, which are passed on to the devices (addresses) that use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/rdma/verbs.h"

namespace hdt::transport::rdma {

// The interface that an RdmaDevice implements to receive its adapter's events.
class NicListener {
 public:
  virtual ~NicListener() = default;
  virtual void on_async_event(const AsyncEvent& event) = 0;
};

// Owned by the Domain for as long as that lives, and used on its thread. Several devices share one Nic if
// the adapter has several addresses.
class Nic {
 public:
  // kSystem if the adapter cannot be opened or asked for its limits. `slot`: its place in region keys,
  // below kMaxNics.
  static Result<std::unique_ptr<Nic>> open(std::shared_ptr<Verbs> verbs, const std::string& name,
                                           uint16_t slot);
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;
  ~Nic();

  const std::string& name() const { return name_; }
  uint16_t slot() const { return slot_; }  // its place in region keys
  Verbs& verbs() const { return *verbs_; }
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  // Asked once, when it was opened.
  const Limits& limits() const { return limits_; }
  // True after DEVICE_FATAL: the adapter does nothing any more, and hands nothing back.
  bool removed() const { return removed_; }

  int async_fd() const { return verbs_->async_fd(context_); }
  // Takes all events off the descriptor and passes each to every listener. Every device watches the
  // descriptor, and the first one that finds it readable does it for all of them.
  void dispatch_async_events();
  // A device enters when it is made and leaves before it is destroyed.
  void add(NicListener* listener) { listeners_.push_back(listener); }
  void remove(NicListener* listener) { std::erase(listeners_, listener); }

 private:
  Nic(std::shared_ptr<Verbs> verbs, std::string name, uint16_t slot);

  std::shared_ptr<Verbs> verbs_;
  std::string name_;
  uint16_t slot_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  Limits limits_;
  bool removed_ = false;
  std::vector<NicListener*> listeners_;
};

}  // namespace hdt::transport::rdma
