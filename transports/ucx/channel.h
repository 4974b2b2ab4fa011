// channel.h: a connection's data path on UCX: a worker of its own with one endpoint. Of its own, so that
// destroying it ends everything that is under way for this connection, and nothing else.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "transports/tagged/channel.h"

namespace hdt::transport::ucx {

class UcxChannel final : public tagged::Channel {
 public:
  static Result<std::unique_ptr<tagged::Channel>> open(ucp_context_h context);
  ~UcxChannel() override;
  std::vector<std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peer) override;
  Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) override;
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override;
  Status poll(std::vector<tagged::Finished>& finished) override;
  int fd() const override { return fd_; }
  bool arm() override;

 private:
  UcxChannel() = default;
  Status open_worker(ucp_context_h context);
  static void on_sent(void* request, ucs_status_t status, void* self);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* self);
  static void on_endpoint_failed(void* self, ucp_ep_h endpoint, ucs_status_t status);
  void done(void* request, ucs_status_t status, size_t bytes);
  void cancel_all();

  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int fd_ = -1;
  std::vector<std::byte> address_;
  std::unordered_map<void*, uint64_t> under_way_;  // request -> id
  std::vector<tagged::Finished> finished_;
  ucs_status_t failed_ = UCS_OK;
};

}  // namespace hdt::transport::ucx
