// data_path.cc: an endpoint of libfabric as a data path; see data_path.h.
#include "transports/ofi/data_path.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>

#include <array>

namespace hdt::transport::ofi {

namespace {
// More than a connection has under way: 64 frames in the window, 16 receives for frames, and up to 64
// segments each way.
constexpr size_t kQueueEntries = 256;
// Completions taken by one call, and by one poll(), about.
constexpr size_t kEntriesPerRead = 32;
constexpr size_t kMaxPollEntries = 128;

// libfabric keeps a pointer for each operation and returns it with the completion; the id travels in it.
void* context_of(uint64_t id) { return reinterpret_cast<void*>(id); }
uint64_t id_of(const void* context) { return reinterpret_cast<uint64_t>(context); }
}  // namespace

Result<std::unique_ptr<tagged::DataPath>> OfiDataPath::open(fid_fabric* fabric, fid_domain* domain,
                                                            fi_info* info) {
  std::unique_ptr<OfiDataPath> data_path(new OfiDataPath(fabric));
  HDT_RETURN_IF_ERROR(data_path->open_queue(domain));
  HDT_RETURN_IF_ERROR(data_path->open_endpoint(domain, info));
  return std::unique_ptr<tagged::DataPath>(std::move(data_path));
}

// Asks for a queue with a descriptor to sleep on, and takes one without where the provider has none (shm).
// Some providers open the queue and refuse the descriptor only then.
Status OfiDataPath::open_queue(fid_domain* domain) {
  fi_cq_attr attributes{};
  attributes.size = kQueueEntries;
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = FI_WAIT_FD;
  int error = fi_cq_open(domain, &attributes, queue_.out(), nullptr);
  if (error == 0 && fi_control(&queue_.get()->fid, FI_GETWAIT, &fd_) != 0) {
    fd_ = -1;
    queue_.reset();
    error = -FI_ENOSYS;
  }
  if (error != 0) {
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain, &attributes, queue_.out(), nullptr);
  }
  return error == 0 ? Status::ok() : from_fi_error("cannot open a completion queue", error);
}

// 1. An address table for one peer, and the endpoint, bound to the table and the queue.
// 2. The address of the endpoint: a first call gives its length (with FI_ETOOSMALL), a second one the
//    bytes.
Status OfiDataPath::open_endpoint(fid_domain* domain, fi_info* info) {
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  attributes.count = 1;
  if (const int error = fi_av_open(domain, &attributes, addresses_.out(), nullptr); error != 0) {
    return from_fi_error("cannot open an address table", error);
  }
  int error = fi_endpoint(domain, info, endpoint_.out(), nullptr);
  if (error == 0) error = fi_ep_bind(endpoint_.get(), &addresses_.get()->fid, 0);
  if (error == 0) error = fi_ep_bind(endpoint_.get(), &queue_.get()->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint_.get());
  size_t bytes = 0;
  if (error == 0) error = fi_getname(&endpoint_.get()->fid, nullptr, &bytes);
  if (error != 0 && error != -FI_ETOOSMALL) return from_fi_error("cannot open an endpoint", error);
  address_.resize(bytes);
  error = fi_getname(&endpoint_.get()->fid, address_.data(), &bytes);
  if (error != 0) return from_fi_error("cannot read an endpoint's address", error);
  address_.resize(bytes);
  inject_bytes_ = info->tx_attr->inject_size;
  // libfabric takes binary addresses by their number and not by their length, so it would read beyond the
  // end of a short one. connect() compares the length with that of our own.
  if (info->addr_format != FI_ADDR_STR) address_limit_ = bytes;
  return Status::ok();
}

// The address is foreign. Text must end with a zero byte inside the span; a binary address must have the
// exact length.
Status OfiDataPath::connect(std::span<const std::byte> peer) {
  // Text addresses have any length (FI_ADDR_STR).
  const bool text = address_limit_ == 0;
  if (text ? peer.back() != std::byte{0} : peer.size() != address_limit_) {
    return {Code::kLink, "the peer's endpoint address is malformed"};
  }
  const int inserted = fi_av_insert(addresses_.get(), peer.data(), 1, &peer_, 0, nullptr);
  if (inserted != 1)
    return from_fi_error("cannot use the peer's endpoint address", inserted < 0 ? inserted : -FI_EINVAL);
  return Status::ok();
}

// FI_EAGAIN: the queues of the endpoint are full.
Result<bool> OfiDataPath::send(uint64_t tag, const void* data, size_t bytes, uint64_t id) {
  const bool inject = bytes <= inject_bytes_;
  const ssize_t error = inject ? fi_tinject(endpoint_.get(), data, bytes, peer_, tag)
                               : fi_tsend(endpoint_.get(), data, bytes, nullptr, peer_, tag, context_of(id));
  if (error == -FI_EAGAIN) return false;
  if (error != 0) return from_fi_error("cannot send", error);
  // An injected send is over when the call returns, and makes no completion.
  if (inject) injected_.push_back(id);
  return true;
}

// No bit of the tag is ignored, and the endpoint has one peer, so the sender is not named.
Result<bool> OfiDataPath::receive(uint64_t tag, void* place, size_t bytes, uint64_t id) {
  const ssize_t error =
      fi_trecv(endpoint_.get(), place, bytes, nullptr, FI_ADDR_UNSPEC, tag, 0, context_of(id));
  if (error == -FI_EAGAIN) return false;
  if (error != 0) return from_fi_error("cannot receive", error);
  return true;
}

// Reads the queue, which also makes progress, until it is empty or the budget is used up. An error that
// lies in the queue (FI_EAVAIL) stops further reading until it is taken off.
Status OfiDataPath::poll(std::vector<tagged::Finished>& finished) {
  for (const uint64_t id : injected_) finished.push_back({id, 0, {}});
  injected_.clear();
  std::array<fi_cq_tagged_entry, kEntriesPerRead> entries;
  for (size_t total = 0; total < kMaxPollEntries;) {
    const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN || count == 0) break;
    if (count == -FI_EAVAIL) return read_error(finished);
    if (count < 0) return from_fi_error("the completion queue failed", count);
    for (ssize_t i = 0; i < count; ++i)
      finished.push_back({id_of(entries[i].op_context), entries[i].len, {}});
    total += static_cast<size_t>(count);
  }
  return Status::ok();
}

Status OfiDataPath::read_error(std::vector<tagged::Finished>& finished) {
  fi_cq_err_entry entry{};
  const ssize_t count = fi_cq_readerr(queue_.get(), &entry, 0);
  if (count < 0) return from_fi_error("the completion queue failed", count);
  finished.push_back({id_of(entry.op_context), 0, from_fi_error("the provider reports", -entry.err)});
  return Status::ok();
}

// fi_trywait() fails if the queue has something, or if progress has to be made first.
bool OfiDataPath::arm() {
  if (!injected_.empty()) return false;
  fid* waited = &queue_.get()->fid;
  return fi_trywait(fabric_, &waited, 1) == 0;
}

}  // namespace hdt::transport::ofi
