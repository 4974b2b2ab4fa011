// data_path.cc: a worker of UCX as a data path; see data_path.h.
#include "transports/ucx/data_path.h"

#include <cstring>

#include "transports/support/hand_over.h"
#include "transports/ucx/fabric.h"

namespace hdt::transport::ucx {

namespace {
// No bit of a tag is ignored.
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};
// Bounds for the loops below, so that one connection does not keep the others waiting.
constexpr int kProgressPerPoll = 64;
constexpr int kArmsPerPoll = 4;
// How often a data path that ends makes progress while it waits for its requests.
constexpr int kProgressAtEnd = 1000;
}  // namespace

Result<std::unique_ptr<tagged::DataPath>> UcxDataPath::open(ucp_context_h context) {
  std::unique_ptr<UcxDataPath> data_path(new UcxDataPath);
  HDT_RETURN_IF_ERROR(data_path->open_worker(context));
  return std::unique_ptr<tagged::DataPath>(std::move(data_path));
}

// One thread uses a worker. The address that UCX returns is copied, as it belongs to the worker.
Status UcxDataPath::open_worker(ucp_context_h context) {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  if (const ucs_status_t status = ucp_worker_create(context, &parameters, &worker_); status != UCS_OK) {
    return from_ucs("cannot open a UCX worker", status);
  }
  if (const ucs_status_t status = ucp_worker_get_efd(worker_, &fd_); status != UCS_OK) {
    return from_ucs("a UCX worker has no descriptor to sleep on", status);
  }
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes); status != UCS_OK) {
    return from_ucs("cannot read a UCX worker's address", status);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  address_.assign(begin, begin + bytes);
  ucp_worker_release_address(worker_, address);
  return Status::ok();
}

UcxDataPath::~UcxDataPath() {
  if (worker_ == nullptr) return;
  cancel_all();
  ucp_worker_destroy(worker_);
}

// The worker should have its requests back before it is destroyed. Requests that are still missing
// after kProgressAtEnd rounds are destroyed with it.
// 1. Closes the endpoint by force: sends end with an error, without waiting for the peer.
// 2. Cancels every request that has not come back by that. The list is copied first, as callbacks change
//    under_way_.
// 3. Makes progress until the close and all requests are over.
void UcxDataPath::cancel_all() {
  std::vector<void*> requests;
  for (const auto& [request, id] : under_way_) requests.push_back(request);
  ucs_status_ptr_t closing = nullptr;
  if (endpoint_ != nullptr) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    closing = ucp_ep_close_nbx(endpoint_, &parameters);
  }
  for (void* request : requests) {
    // The close, or a cancellation, may have completed it: then it is freed already.
    if (under_way_.contains(request)) ucp_request_cancel(worker_, request);
  }
  // True while the close of the endpoint is under way; it may also be over at once.
  const auto open = [&] {
    return UCS_PTR_IS_PTR(closing) && ucp_request_check_status(closing) == UCS_INPROGRESS;
  };
  for (int i = 0; i < kProgressAtEnd && (open() || !under_way_.empty()); ++i) ucp_worker_progress(worker_);
  if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
}

// With UCP_ERR_HANDLING_MODE_PEER a peer that dies ends the operations and calls on_endpoint_failed(). The
// address is foreign and opaque: UCX alone can judge it, which only an admitted peer can make it do.
Status UcxDataPath::connect(std::span<const std::byte> peer) {
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(peer.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &UcxDataPath::on_endpoint_failed;
  parameters.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker_, &parameters, &endpoint_);
  return status == UCS_OK ? Status::ok() : from_ucs("UCX finds no way to the peer", status);
}

// A null request means that the send was over at once, and that no callback comes.
Result<bool> UcxDataPath::send(uint64_t tag, const void* data, size_t bytes, uint64_t id) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = &UcxDataPath::on_sent;
  parameters.user_data = this;
  void* request = ucp_tag_send_nbx(endpoint_, data, bytes, tag, &parameters);
  if (UCS_PTR_IS_ERR(request)) return from_ucs("cannot send", UCS_PTR_STATUS(request));
  if (request == nullptr) {
    finished_.push_back({id, bytes, {}});
  } else {
    under_way_.emplace(request, id);
  }
  return true;
}

// A message that is there already completes inside the call. UCX then gives its length only through a
// request, so one is always asked for (NO_IMM_CMPL). Its callback may run before the request is in
// under_way_, and does nothing then; the test after the call finds such a request.
Result<bool> UcxDataPath::receive(uint64_t tag, void* place, size_t bytes, uint64_t id) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.cb.recv = &UcxDataPath::on_received;
  parameters.user_data = this;
  void* request = ucp_tag_recv_nbx(worker_, place, bytes, tag, kWholeTag, &parameters);
  if (UCS_PTR_IS_ERR(request)) return from_ucs("cannot receive", UCS_PTR_STATUS(request));
  under_way_.emplace(request, id);
  ucp_tag_recv_info_t info{};
  const ucs_status_t status = ucp_tag_recv_request_test(request, &info);
  if (status != UCS_INPROGRESS) done(request, status, info.length);
  return true;
}

void UcxDataPath::on_sent(void* request, ucs_status_t status, void* self) {
  static_cast<UcxDataPath*>(self)->done(request, status, 0);
}

void UcxDataPath::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                              void* self) {
  static_cast<UcxDataPath*>(self)->done(request, status, status == UCS_OK ? info->length : 0);
}

// The callback of a receive may come inside the call that starts it; receive() then calls this itself.
void UcxDataPath::done(void* request, ucs_status_t status, size_t bytes) {
  const auto found = under_way_.find(request);
  if (found == under_way_.end()) return;
  finished_.push_back(
      {found->second, bytes, status == UCS_OK ? Status::ok() : from_ucs("UCX reports", status)});
  under_way_.erase(found);
  ucp_request_free(request);
}

// Only noted: poll() reports it, and the endpoint is closed when the data path ends.
void UcxDataPath::on_endpoint_failed(void* self, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxDataPath*>(self)->failed_ = status;
}

// Operations that have completed are handed over even if the peer was lost.
Status UcxDataPath::poll(std::vector<tagged::Finished>& finished) {
  for (int i = 0; i < kProgressPerPoll && ucp_worker_progress(worker_) != 0; ++i) {
  }
  hand_over(finished_, finished);
  return failed_ == UCS_OK ? Status::ok() : from_ucs("UCX lost the peer", failed_);
}

// UCX refuses to be armed while there are events that nobody has handled: progress is made, and it is
// tried again, a few times. If that completes something, poll() has to hand it over first.
bool UcxDataPath::arm() {
  for (int i = 0; i < kArmsPerPoll && finished_.empty() && failed_ == UCS_OK; ++i) {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status != UCS_ERR_BUSY) return status == UCS_OK;
    for (int j = 0; j < kProgressPerPoll && ucp_worker_progress(worker_) != 0; ++j) {
    }
  }
  return false;
}

}  // namespace hdt::transport::ucx
