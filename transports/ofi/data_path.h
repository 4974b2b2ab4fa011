// data_path.h: the data path of a connection on libfabric: a reliable datagram endpoint (FI_EP_RDM) with a
// completion queue. Every connection has an endpoint of its own, because closing it is the only call that
// ends everything under way, and it must end that of this connection alone.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <vector>

#include "transports/ofi/handle.h"
#include "transports/tagged/data_path.h"

namespace hdt::transport::ofi {

// Owned by a connection, used on its thread; the fabric and the domain outlive it. Progress is made only
// inside its calls (FI_PROGRESS_MANUAL), so the library places nothing between them. The contract of
// its functions is in transports/tagged/data_path.h.
class OfiDataPath final : public tagged::DataPath {
 public:
  // Opens the queue and the endpoint, which takes a millisecond or two. kLink, with libfabric's reason, if
  // it fails.
  static Result<std::unique_ptr<tagged::DataPath>> open(fid_fabric* fabric, fid_domain* domain,
                                                        fi_info* info);
  std::vector<std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peer) override;
  Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) override;
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override;
  Status poll(std::vector<tagged::Finished>& finished) override;
  int fd() const override { return fd_; }
  bool arm() override;

 private:
  explicit OfiDataPath(fid_fabric* fabric) : fabric_(fabric) {}
  // The two parts of open().
  Status open_queue(fid_domain* domain);
  Status open_endpoint(fid_domain* domain, fi_info* info);
  // A failed operation is reported apart from the others: takes it off the queue.
  Status read_error(std::vector<tagged::Finished>& finished);

  fid_fabric* fabric_;        // not owned
  int fd_ = -1;               // of the completion queue; -1: the provider has none
  size_t inject_bytes_ = 0;   // up to this length a send is copied at once and makes no completion
  size_t address_limit_ = 0;  // length of every address of this provider; 0: addresses are text
  std::vector<std::byte> address_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;  // of the peer, in addresses_; set by connect()
  std::vector<uint64_t> injected_;   // ids of injected sends, to be reported by the next poll()
  // Closed from the last to the first: the endpoint before what it is bound to.
  Handle<fid_av> addresses_;
  Handle<fid_cq> queue_;
  Handle<fid_ep> endpoint_;
};

}  // namespace hdt::transport::ofi
