// channel.h: a connection's data path on libfabric: a reliable datagram endpoint of its own with its
// completion queue. Of its own, so that closing it ends everything that is under way for this connection, and
// nothing else.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <vector>

#include "transports/ofi/handle.h"
#include "transports/tagged/channel.h"

namespace hdt::transport::ofi {

class OfiChannel final : public tagged::Channel {
 public:
  static Result<std::unique_ptr<tagged::Channel>> open(fid_fabric* fabric, fid_domain* domain, fi_info* info);
  std::vector<std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peer) override;
  Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) override;
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override;
  Status poll(std::vector<tagged::Finished>& finished) override;
  int fd() const override { return fd_; }
  bool arm() override;

 private:
  explicit OfiChannel(fid_fabric* fabric) : fabric_(fabric) {}
  Status open_queue(fid_domain* domain);
  Status open_endpoint(fid_domain* domain, fi_info* info);
  Status read_error(std::vector<tagged::Finished>& finished);

  fid_fabric* fabric_;
  int fd_ = -1;
  size_t inject_bytes_ = 0;
  size_t address_limit_ = 0;
  std::vector<std::byte> address_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<uint64_t> injected_;  // sent, to be reported by the next poll()
  // Closed from the last to the first: the endpoint before what it uses.
  Handle<fid_av> addresses_;
  Handle<fid_cq> queue_;
  Handle<fid_ep> endpoint_;
};

}  // namespace hdt::transport::ofi
