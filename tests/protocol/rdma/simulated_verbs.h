// simulated_verbs.h: adapters in memory behind Verbs: they check keys and bounds, need posted receives, flush
// what a broken queue pair had, and tell what rdma_cm would. The fields say what goes wrong; tests set them.
// Used by one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transports/rdma/verbs.h"

namespace hdt::transport::rdma {

// Something to fetch, and a descriptor that is readable while there is.
template <typename Item>
class Signalled;

class SimulatedVerbs : public Verbs {
 public:
  SimulatedVerbs();
  ~SimulatedVerbs() override;

  // Addresses "127.0.2.N" belong to the adapter "simN"; 127.0.2.9 never answers; others are no adapter's.
  std::set<std::string> silent = {"127.0.2.9"};
  // Errno values that calls fail with, once the count before them is used up (-1: never).
  int register_failures_after = -1;
  int create_qp_error = 0;
  int modify_error = 0;
  int deregister_error = 0;
  bool inline_refused = false;
  // Requests are taken but not executed.
  bool hold = false;
  // The status of the next SEND that is executed; IBV_WC_SUCCESS: as it should be.
  ibv_wc_status next_send_status = IBV_WC_SUCCESS;
  // Requests answered by this rejection.
  int reject_status = 0;
  // Overwrites bytes of the private data that is carried.
  std::map<size_t, std::byte> mangled;
  ibv_gid gid{};
  ibv_port_state port_state = IBV_PORT_ACTIVE;

  void raise(const std::string& device, const AsyncEvent& event);
  void raise_cm(rdma_cm_event_type type, int status = 0);  // to every id that is connected or listens
  size_t registrations() const { return regions_.size(); }
  size_t queue_pairs() const { return qps_.size(); }
  uint64_t not_ready = 0;  // SENDs that found no receive

  ibv_context* open_device(const std::string& name) override;
  void close_device(ibv_context* context) override;
  int query_limits(ibv_context* context, Limits& limits) override;
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr& attributes) override;
  int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid& found) override;
  int async_fd(ibv_context* context) override;
  bool next_async_event(ibv_context* context, AsyncEvent& event) override;
  ibv_pd* alloc_pd(ibv_context* context) override;
  void dealloc_pd(ibv_pd* pd) override;
  ibv_mr* register_memory(ibv_pd* pd, void* base, size_t bytes, uint64_t iova, unsigned access) override;
  int deregister_memory(ibv_mr* region) override;
  ibv_comp_channel* create_completion_channel(ibv_context* context) override;
  void destroy_completion_channel(ibv_comp_channel* channel) override;
  bool next_completion_event(ibv_comp_channel* channel) override;
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override;
  void destroy_cq(ibv_cq* cq) override;
  int request_notification(ibv_cq* cq) override;
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) override;
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) override;
  void destroy_qp(ibv_qp* qp) override;
  int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) override;
  int post_receive(ibv_qp* qp, ibv_recv_wr* requests) override;
  rdma_event_channel* create_event_channel() override;
  void destroy_event_channel(rdma_event_channel* channel) override;
  bool next_cm_event(rdma_event_channel* channel, CmEvent& event) override;
  rdma_cm_id* create_id(rdma_event_channel* channel, void* context) override;
  void destroy_id(rdma_cm_id* id) override;
  int bind(rdma_cm_id* id, const sockaddr* address) override;
  std::string device_of(const rdma_cm_id* id) override;
  int listen(rdma_cm_id* id, int backlog) override;
  int resolve_address(rdma_cm_id* id, const sockaddr* remote, int timeout_ms) override;
  int resolve_route(rdma_cm_id* id, int timeout_ms) override;
  int connect(rdma_cm_id* id, rdma_conn_param& parameters) override;
  int accept(rdma_cm_id* id, rdma_conn_param& parameters) override;
  int reject(rdma_cm_id* id, const void* data, size_t bytes) override;
  int establish(rdma_cm_id* id) override;
  int disconnect(rdma_cm_id* id) override;
  int qp_attributes(rdma_cm_id* id, ibv_qp_attr& attributes, int& mask) override;

 private:
  struct Context;
  struct Region;
  struct CompletionChannel;
  struct Queue;
  struct Pair;
  struct Id;
  struct Channel;
  struct Request {  // a posted SEND or RDMA WRITE, with inline bytes copied
    uint64_t id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    bool signalled = false;
    const std::byte* data = nullptr;
    std::vector<std::byte> inlined;
    size_t bytes = 0;
    uint64_t address = 0;
    uint32_t key = 0;
  };

  std::byte* place_of(uint32_t key, uint64_t address, size_t bytes, bool remote);
  ibv_wc_status execute(Pair& pair, const Request& request);
  void run(Pair& pair);
  void break_pair(Pair& pair);
  void complete(Queue& queue, uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, uint32_t bytes,
                uint32_t qp);
  void tell(Id* id, rdma_cm_event_type type, int status = 0, const void* data = nullptr, size_t bytes = 0);

  uint32_t next_number_ = 100;
  std::set<Context*> contexts_;
  std::map<uint32_t, Region*> regions_;
  std::map<uint32_t, Pair*> qps_;
  std::set<Id*> ids_;
};

}  // namespace hdt::transport::rdma
