// system_verbs.cc: Verbs by libibverbs and librdmacm; see verbs.h for what each call promises. Most calls
// are passed on. This file adds that descriptors never block, the two conventions of errors (errno value
// returned, or -1 and errno) become one, and events are copied and acknowledged at once.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transports/rdma/verbs.h"

namespace hdt::transport::rdma {

namespace {

// For calls that return -1 and set errno.
int error_of(int result) { return result == 0 ? 0 : errno; }

// For the descriptors that the libraries make; next_...() then return at once.
void never_block(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Which member of ibv_async_event::element is valid depends on the type.
bool is_qp_event(ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR ||
         type == IBV_EVENT_COMM_EST || type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
         type == IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

bool is_port_event(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_LID_CHANGE ||
         type == IBV_EVENT_PKEY_CHANGE || type == IBV_EVENT_SM_CHANGE ||
         type == IBV_EVENT_CLIENT_REREGISTER || type == IBV_EVENT_GID_CHANGE;
}

class SystemVerbs final : public Verbs {
 public:
  // ibv_free_device_list() may change errno, so it is kept.
  ibv_context* open_device(const std::string& name) override {
    int count = 0;
    ibv_device** devices = ::ibv_get_device_list(&count);
    if (devices == nullptr) return nullptr;
    ibv_context* context = nullptr;
    errno = ENODEV;
    for (int i = 0; i < count; ++i) {
      if (name == ::ibv_get_device_name(devices[i])) context = ::ibv_open_device(devices[i]);
    }
    const int error = errno;
    ::ibv_free_device_list(devices);
    errno = error;
    if (context != nullptr) never_block(context->async_fd);
    return context;
  }
  void close_device(ibv_context* context) override { ::ibv_close_device(context); }
  int query_limits(ibv_context* context, Limits& limits) override {
    ibv_device_attr attributes{};
    const int error = ::ibv_query_device(context, &attributes);
    limits.completion_entries = attributes.max_cqe;
    limits.send_requests = attributes.max_qp_wr;
    return error;
  }
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr& attributes) override {
    return ::ibv_query_port(context, port, &attributes);
  }
  // ibv_query_gid() returns -1 on failure, unlike the other queries.
  int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid& gid) override {
    return error_of(::ibv_query_gid(context, port, index, &gid));
  }
  int async_fd(ibv_context* context) override { return context->async_fd; }
  // The queue pair in an event stays valid until the event is acknowledged, so its number is taken before
  // that.
  bool next_async_event(ibv_context* context, AsyncEvent& event) override {
    ibv_async_event found{};
    if (::ibv_get_async_event(context, &found) != 0) return false;
    event = {};
    event.type = found.event_type;
    if (is_qp_event(found.event_type)) event.qp_number = found.element.qp->qp_num;
    if (is_port_event(found.event_type)) event.port = static_cast<uint8_t>(found.element.port_num);
    ::ibv_ack_async_event(&found);
    return true;
  }

  ibv_pd* alloc_pd(ibv_context* context) override { return ::ibv_alloc_pd(context); }
  void dealloc_pd(ibv_pd* pd) override { ::ibv_dealloc_pd(pd); }
  // With an address of our choice instead of the virtual one (region_key.h).
  ibv_mr* register_memory(ibv_pd* pd, void* base, size_t bytes, uint64_t iova, unsigned access) override {
    return ::ibv_reg_mr_iova(pd, base, bytes, iova, access);
  }
  int deregister_memory(ibv_mr* region) override { return ::ibv_dereg_mr(region); }

  ibv_comp_channel* create_completion_channel(ibv_context* context) override {
    ibv_comp_channel* channel = ::ibv_create_comp_channel(context);
    if (channel != nullptr) never_block(channel->fd);
    return channel;
  }
  void destroy_completion_channel(ibv_comp_channel* channel) override { ::ibv_destroy_comp_channel(channel); }
  // Events must be acknowledged before a queue can be destroyed; one at a time is enough, as events are
  // rare.
  bool next_completion_event(ibv_comp_channel* channel) override {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (::ibv_get_cq_event(channel, &cq, &context) != 0) return false;
    ::ibv_ack_cq_events(cq, 1);
    return true;
  }
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override {
    return ::ibv_create_cq(context, entries, nullptr, channel, 0);
  }
  void destroy_cq(ibv_cq* cq) override { ::ibv_destroy_cq(cq); }
  // For any completion, not only for those that the sender has marked (solicited).
  int request_notification(ibv_cq* cq) override { return ::ibv_req_notify_cq(cq, 0); }
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override {
    return ::ibv_poll_cq(cq, entries, completions);
  }

  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) override {
    return ::ibv_create_qp(pd, &attributes);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) override {
    return ::ibv_modify_qp(qp, &attributes, mask);
  }
  void destroy_qp(ibv_qp* qp) override { ::ibv_destroy_qp(qp); }
  int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) override {
    return ::ibv_post_send(qp, requests, bad);
  }
  int post_receive(ibv_qp* qp, ibv_recv_wr* requests) override {
    ibv_recv_wr* bad = nullptr;
    return ::ibv_post_recv(qp, requests, &bad);
  }

  rdma_event_channel* create_event_channel() override {
    rdma_event_channel* channel = ::rdma_create_event_channel();
    if (channel != nullptr) never_block(channel->fd);
    return channel;
  }
  void destroy_event_channel(rdma_event_channel* channel) override { ::rdma_destroy_event_channel(channel); }
  // rdma_ack_cm_event() frees the private data, and rdma_destroy_id() waits for events that are not
  // acknowledged.
  bool next_cm_event(rdma_event_channel* channel, CmEvent& event) override {
    rdma_cm_event* found = nullptr;
    if (::rdma_get_cm_event(channel, &found) != 0) return false;
    event = {};
    event.type = found->event;
    event.status = found->status;
    event.id = found->id;
    event.private_bytes = std::min<size_t>(found->param.conn.private_data_len, event.private_data.size());
    if (event.private_bytes > 0) {
      std::memcpy(event.private_data.data(), found->param.conn.private_data, event.private_bytes);
    }
    ::rdma_ack_cm_event(found);
    return true;
  }
  // The port space of TCP: addresses and ports as sockets have them, reliable connections.
  rdma_cm_id* create_id(rdma_event_channel* channel, void* context) override {
    rdma_cm_id* id = nullptr;
    return ::rdma_create_id(channel, &id, context, RDMA_PS_TCP) == 0 ? id : nullptr;
  }
  void destroy_id(rdma_cm_id* id) override { ::rdma_destroy_id(id); }
  int bind(rdma_cm_id* id, const sockaddr* address) override {
    return error_of(::rdma_bind_addr(id, const_cast<sockaddr*>(address)));
  }
  // An id that was bound to an address of no RDMA device has no context.
  std::string device_of(const rdma_cm_id* id) override {
    return id->verbs == nullptr ? "" : ::ibv_get_device_name(id->verbs->device);
  }
  int listen(rdma_cm_id* id, int backlog) override { return error_of(::rdma_listen(id, backlog)); }
  // Without a source address, as the id is bound to one.
  int resolve_address(rdma_cm_id* id, const sockaddr* remote, int timeout_ms) override {
    return error_of(::rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(remote), timeout_ms));
  }
  int resolve_route(rdma_cm_id* id, int timeout_ms) override {
    return error_of(::rdma_resolve_route(id, timeout_ms));
  }
  int connect(rdma_cm_id* id, rdma_conn_param& parameters) override {
    return error_of(::rdma_connect(id, &parameters));
  }
  int accept(rdma_cm_id* id, rdma_conn_param& parameters) override {
    return error_of(::rdma_accept(id, &parameters));
  }
  int reject(rdma_cm_id* id, const void* data, size_t bytes) override {
    return error_of(::rdma_reject(id, data, static_cast<uint8_t>(bytes)));
  }
  int establish(rdma_cm_id* id) override { return error_of(::rdma_establish(id)); }
  int disconnect(rdma_cm_id* id) override { return error_of(::rdma_disconnect(id)); }
  int qp_attributes(rdma_cm_id* id, ibv_qp_attr& attributes, int& mask) override {
    return error_of(::rdma_init_qp_attr(id, &attributes, &mask));
  }
};

}  // namespace

std::shared_ptr<Verbs> system_verbs() { return std::make_shared<SystemVerbs>(); }

}  // namespace hdt::transport::rdma
