// verbs.h: the calls of libibverbs and librdmacm that this backend uses, as a virtual class.
// system_verbs() calls the libraries; tests drive every error path with a simulated adapter
// (tests/protocol/rdma). Everything above works on the C structures of the two libraries, which stay as
// they are.
//
// Conventions: a call that returns int returns 0 or an errno value. A call that makes an object returns
// nullptr on failure and sets errno. Nothing blocks: every descriptor is non-blocking, and next_...()
// returns false if there is no event.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hdt::transport::rdma {

// An event of rdma_cm, copied out of the library, so that the library's event can be acknowledged at once.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;  // 0, a negative errno value, or the reason of a rejection, as the type has it
  // For a connect request: the id of the new connection; otherwise the id that the event is about.
  rdma_cm_id* id = nullptr;
  std::array<std::byte, 64> private_data{};  // of the peer: foreign; padded with zeroes by the library
  size_t private_bytes = 0;
};

// An asynchronous event of an adapter.
struct AsyncEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  uint32_t qp_number = 0;  // of an event about a queue pair
  uint8_t port = 0;        // of an event about a port, from 1
};

// The limits of an adapter.
struct Limits {
  int completion_entries = 0;  // entries of one completion queue
  int send_requests = 0;       // requests of one queue pair
};

// One per Backend, used on its thread. It must outlive all objects that it made.
class Verbs {
 public:
  virtual ~Verbs() = default;

  // Adapters. A context is opened once per Nic, so that its asynchronous events reach the thread that they
  // belong to. ENODEV: there is no adapter of that name.
  virtual ibv_context* open_device(const std::string& name) = 0;
  virtual void close_device(ibv_context* context) = 0;
  // Properties of the adapter and its ports: limits, state and speed of a port, address (GID) at an index.
  virtual int query_limits(ibv_context* context, Limits& limits) = 0;
  virtual int query_port(ibv_context* context, uint8_t port, ibv_port_attr& attributes) = 0;
  virtual int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid& gid) = 0;
  virtual int async_fd(ibv_context* context) = 0;
  // Takes one event off and acknowledges it.
  virtual bool next_async_event(ibv_context* context, AsyncEvent& event) = 0;

  // Protection domains and registered memory. `iova`: the address at which the adapter finds the first
  // byte; `access`: IBV_ACCESS_ bits for the peer and this adapter.
  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual void dealloc_pd(ibv_pd* pd) = 0;
  virtual ibv_mr* register_memory(ibv_pd* pd, void* base, size_t bytes, uint64_t iova, unsigned access) = 0;
  virtual int deregister_memory(ibv_mr* region) = 0;

  // Completion queues. A channel's descriptor becomes readable after request_notification(), with the next
  // completion. poll_cq() returns the number of completions taken, negative on failure.
  virtual ibv_comp_channel* create_completion_channel(ibv_context* context) = 0;
  virtual void destroy_completion_channel(ibv_comp_channel* channel) = 0;
  // True if an event was there; it is acknowledged.
  virtual bool next_completion_event(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) = 0;
  virtual void destroy_cq(ibv_cq* cq) = 0;
  virtual int request_notification(ibv_cq* cq) = 0;
  virtual int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) = 0;

  // Queue pairs. post_send() hands over a list of requests in order; on failure `bad` is the first one
  // that was not taken.
  virtual ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) = 0;
  // `mask` says which attributes are set (IBV_QP_).
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) = 0;
  virtual void destroy_qp(ibv_qp* qp) = 0;
  virtual int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) = 0;
  virtual int post_receive(ibv_qp* qp, ibv_recv_wr* requests) = 0;

  // rdma_cm: finds the path to an address, and carries the handshake of two queue pairs with a little
  // private data. `context` is kept in id->context. The steps of a dialer are resolve_address(),
  // resolve_route(), connect(), establish(); each answers by an event.
  virtual rdma_event_channel* create_event_channel() = 0;
  virtual void destroy_event_channel(rdma_event_channel* channel) = 0;
  virtual bool next_cm_event(rdma_event_channel* channel, CmEvent& event) = 0;
  virtual rdma_cm_id* create_id(rdma_event_channel* channel, void* context) = 0;
  virtual void destroy_id(rdma_cm_id* id) = 0;
  virtual int bind(rdma_cm_id* id, const sockaddr* address) = 0;
  // The name of the RDMA device that the id is bound to; empty if there is none.
  virtual std::string device_of(const rdma_cm_id* id) = 0;
  virtual int listen(rdma_cm_id* id, int backlog) = 0;
  virtual int resolve_address(rdma_cm_id* id, const sockaddr* remote, int timeout_ms) = 0;
  virtual int resolve_route(rdma_cm_id* id, int timeout_ms) = 0;
  virtual int connect(rdma_cm_id* id, rdma_conn_param& parameters) = 0;
  virtual int accept(rdma_cm_id* id, rdma_conn_param& parameters) = 0;
  // Answers of the end that accepts: with a queue pair in `parameters`, or a rejection with private data.
  // establish() is the dialer's last step; disconnect() ends an established connection.
  virtual int reject(rdma_cm_id* id, const void* data, size_t bytes) = 0;
  virtual int establish(rdma_cm_id* id) = 0;
  virtual int disconnect(rdma_cm_id* id) = 0;
  // The attributes, and the mask of those that are set, that take a queue pair of this connection to
  // attributes.qp_state.
  virtual int qp_attributes(rdma_cm_id* id, ibv_qp_attr& attributes, int& mask) = 0;
};

// The implementation over the installed libraries.
std::shared_ptr<Verbs> system_verbs();

}  // namespace hdt::transport::rdma
