// data_path.h: the data path of a connection on UCX: a worker with one endpoint. Every connection has a
// worker of its own, because destroying it is the only call that ends everything under way, and it must
// end that of this connection alone.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "transports/tagged/data_path.h"

namespace hdt::transport::ucx {

// Owned by a connection, used on its thread; the context outlives it. UCX makes progress, and calls back,
// only inside our calls. The contract of its functions is in transports/tagged/data_path.h.
//
// A request is UCX's handle of an operation. It is in under_way_ from the call that starts it until it has
// come back; then it is freed, and its result waits in finished_ for the next poll().
class UcxDataPath final : public tagged::DataPath {
 public:
  // Opens the worker, which takes 5 to 20 ms. kLink, with UCX's reason, if it fails.
  static Result<std::unique_ptr<tagged::DataPath>> open(ucp_context_h context);
  // When it returns, nothing of this connection is read or placed any more.
  ~UcxDataPath() override;
  std::vector<std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peer) override;
  Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) override;
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override;
  Status poll(std::vector<tagged::Finished>& finished) override;
  int fd() const override { return fd_; }
  bool arm() override;

 private:
  UcxDataPath() = default;
  // The part of open() that may fail half way; the destructor cleans up.
  Status open_worker(ucp_context_h context);
  // UCX's callbacks; `self` is the data_path. They are called inside ucp_worker_progress(), and inside the
  // call that starts an operation.
  static void on_sent(void* request, ucs_status_t status, void* self);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* self);
  static void on_endpoint_failed(void* self, ucp_ep_h endpoint, ucs_status_t status);
  // A request has come back: notes its result and frees it. No effect for one that is not in under_way_.
  void done(void* request, ucs_status_t status, size_t bytes);
  // Closes the endpoint by force and waits, a bounded time, until all requests have come back.
  void cancel_all();

  ucp_worker_h worker_ = nullptr;  // null only until open_worker() has made it
  ucp_ep_h endpoint_ = nullptr;    // null until connect()
  int fd_ = -1;                    // of the worker, to sleep on; belongs to UCX
  std::vector<std::byte> address_;
  std::unordered_map<void*, uint64_t> under_way_;  // request -> id
  std::vector<tagged::Finished> finished_;         // to be handed over by the next poll()
  ucs_status_t failed_ = UCS_OK;                   // why UCX has given up the peer
};

}  // namespace hdt::transport::ucx
