// nic.cc: opens an adapter and passes on its events; see nic.h.
#include "transports/rdma/nic.h"

#include <cerrno>

namespace hdt::transport::rdma {

Nic::Nic(std::shared_ptr<Verbs> verbs, std::string name, uint16_t slot)
    : verbs_(std::move(verbs)), name_(std::move(name)), slot_(slot) {}

Result<std::unique_ptr<Nic>> Nic::open(std::shared_ptr<Verbs> verbs, const std::string& name, uint16_t slot) {
  std::unique_ptr<Nic> nic(new Nic(std::move(verbs), name, slot));
  nic->context_ = nic->verbs_->open_device(name);
  if (nic->context_ == nullptr) return Status::from_errno("cannot open the RDMA device " + name, errno);
  nic->pd_ = nic->verbs_->alloc_pd(nic->context_);
  if (nic->pd_ == nullptr) return Status::from_errno("cannot get a protection domain of " + name, errno);
  if (const int error = nic->verbs_->query_limits(nic->context_, nic->limits_); error != 0) {
    return Status::from_errno("cannot ask " + name + " for its limits", error);
  }
  return nic;
}

// After open() has failed half way, only what was opened is closed.
Nic::~Nic() {
  if (pd_ != nullptr) verbs_->dealloc_pd(pd_);
  if (context_ != nullptr) verbs_->close_device(context_);
}

// removed_ is set before the listeners are called, so that they open nothing on the adapter any more.
void Nic::dispatch_async_events() {
  AsyncEvent event;
  while (verbs_->next_async_event(context_, event)) {
    if (event.type == IBV_EVENT_DEVICE_FATAL) removed_ = true;
    for (NicListener* listener : listeners_) listener->on_async_event(event);
  }
}

}  // namespace hdt::transport::rdma
