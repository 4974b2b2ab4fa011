// simulated_verbs.cc: adapters: memory, queues, queue pairs; see simulated_verbs.h. rdma_cm is in
// simulated_cm.cc.
#include "tests/protocol/rdma/simulated_verbs.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "tests/protocol/rdma/simulated_objects.h"

namespace hdt::transport::rdma {

namespace {
template <typename Object, typename Handle>
Object* object_of(Handle* handle) {
  return reinterpret_cast<Object*>(handle);
}
}  // namespace

SimulatedVerbs::SimulatedVerbs() { gid.raw[15] = 1; }

// Objects that are left were leaked by the backend.
SimulatedVerbs::~SimulatedVerbs() {
  if (contexts_.empty() && regions_.empty() && qps_.empty() && ids_.empty()) return;
  std::cerr << "left behind: " << contexts_.size() << " devices, " << regions_.size() << " registrations, "
            << qps_.size() << " queue pairs, " << ids_.size() << " ids\n";
  std::abort();
}

ibv_context* SimulatedVerbs::open_device(const std::string& name) {
  auto* const context = new Context;
  context->name = name;
  contexts_.insert(context);
  return &context->handle;
}
void SimulatedVerbs::close_device(ibv_context* context) {
  contexts_.erase(object_of<Context>(context));
  delete object_of<Context>(context);
}
int SimulatedVerbs::query_limits(ibv_context*, Limits& limits) {
  limits.completion_entries = 1000;  // five connections: more queues have to be made
  limits.send_requests = 1000;
  return 0;
}
int SimulatedVerbs::query_port(ibv_context*, uint8_t, ibv_port_attr& attributes) {
  attributes = {};
  attributes.state = port_state;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.active_speed = 32;
  attributes.active_width = 2;
  return 0;
}
int SimulatedVerbs::query_gid(ibv_context*, uint8_t, int, ibv_gid& found) {
  found = gid;
  return 0;
}
int SimulatedVerbs::async_fd(ibv_context* context) { return object_of<Context>(context)->events.fd(); }
bool SimulatedVerbs::next_async_event(ibv_context* context, AsyncEvent& event) {
  return object_of<Context>(context)->events.pop(event);
}
void SimulatedVerbs::raise(const std::string& device, const AsyncEvent& event) {
  for (Context* context : contexts_) {
    if (context->name == device) context->events.push(event);
  }
}

ibv_pd* SimulatedVerbs::alloc_pd(ibv_context* context) {
  auto* const pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
void SimulatedVerbs::dealloc_pd(ibv_pd* pd) { delete pd; }

ibv_mr* SimulatedVerbs::register_memory(ibv_pd* pd, void* base, size_t bytes, uint64_t iova,
                                        unsigned access) {
  if (register_failures_after == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  if (register_failures_after > 0) --register_failures_after;
  auto* const region = new Region;
  region->base = static_cast<std::byte*>(base);
  region->bytes = bytes;
  region->iova = iova;
  region->access = access;
  region->handle.pd = pd;
  region->handle.lkey = region->handle.rkey = next_number_++;
  regions_.emplace(region->handle.rkey, region);
  return &region->handle;
}
int SimulatedVerbs::deregister_memory(ibv_mr* region) {
  regions_.erase(region->rkey);
  delete object_of<Region>(region);
  return deregister_error;
}
std::byte* SimulatedVerbs::place_of(uint32_t key, uint64_t address, size_t bytes, bool remote) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  const Region& region = *found->second;
  if (remote && (region.access & IBV_ACCESS_REMOTE_WRITE) == 0) return nullptr;
  if (address < region.iova || bytes > region.bytes || address - region.iova > region.bytes - bytes)
    return nullptr;
  return region.base + (address - region.iova);
}

ibv_comp_channel* SimulatedVerbs::create_completion_channel(ibv_context*) {
  auto* const channel = new CompletionChannel;
  channel->handle.fd = channel->events.fd();
  return &channel->handle;
}
void SimulatedVerbs::destroy_completion_channel(ibv_comp_channel* channel) {
  delete object_of<CompletionChannel>(channel);
}
bool SimulatedVerbs::next_completion_event(ibv_comp_channel* channel) {
  int unused = 0;
  return object_of<CompletionChannel>(channel)->events.pop(unused);
}
ibv_cq* SimulatedVerbs::create_cq(ibv_context*, int entries, ibv_comp_channel* channel) {
  auto* const queue = new Queue;
  queue->entries = static_cast<size_t>(entries);
  queue->channel = object_of<CompletionChannel>(channel);
  return &queue->handle;
}
void SimulatedVerbs::destroy_cq(ibv_cq* cq) { delete object_of<Queue>(cq); }
int SimulatedVerbs::request_notification(ibv_cq* cq) {
  object_of<Queue>(cq)->armed = true;
  return 0;
}
int SimulatedVerbs::poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  auto& waiting = object_of<Queue>(cq)->completions;
  int count = 0;
  for (; count < entries && !waiting.empty(); ++count) {
    completions[count] = waiting.front();
    waiting.pop_front();
  }
  return count;
}
void SimulatedVerbs::complete(Queue& queue, uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode,
                              uint32_t bytes, uint32_t qp) {
  if (queue.completions.size() == queue.entries) {
    std::cerr << "a completion queue overflowed\n";
    std::abort();
  }
  ibv_wc& completion = queue.completions.emplace_back();
  completion = {};
  completion.wr_id = id;
  completion.status = status;
  completion.opcode = opcode;
  completion.byte_len = bytes;
  completion.qp_num = qp;
  if (queue.armed) queue.channel->events.push(0);
  queue.armed = false;
}

ibv_qp* SimulatedVerbs::create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  errno = create_qp_error;
  if (create_qp_error != 0) return nullptr;
  errno = EINVAL;
  if (inline_refused && attributes.cap.max_inline_data > 0) return nullptr;
  auto* const pair = new Pair;
  pair->context = object_of<Context>(pd->context);
  pair->queue = object_of<Queue>(attributes.send_cq);
  pair->inline_bytes = attributes.cap.max_inline_data;
  pair->send_requests = attributes.cap.max_send_wr;
  pair->handle.qp_num = next_number_++;
  qps_.emplace(pair->handle.qp_num, pair);
  return &pair->handle;
}
int SimulatedVerbs::modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  if (modify_error != 0 && attributes.qp_state != IBV_QPS_ERR) return modify_error;
  Pair& pair = *object_of<Pair>(qp);
  if (attributes.qp_state == IBV_QPS_ERR) {
    break_pair(pair);
    return 0;
  }
  if (attributes.qp_state == IBV_QPS_RTR) pair.peer = attributes.dest_qp_num;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) pair.access = attributes.qp_access_flags;
  pair.state = attributes.qp_state;
  return 0;
}
void SimulatedVerbs::destroy_qp(ibv_qp* qp) {
  qps_.erase(qp->qp_num);
  delete object_of<Pair>(qp);
}

int SimulatedVerbs::post_receive(ibv_qp* qp, ibv_recv_wr* requests) {
  Pair& pair = *object_of<Pair>(qp);
  if (pair.state == IBV_QPS_RESET) return EINVAL;
  pair.receives.emplace_back(requests->wr_id, *requests->sg_list);
  return 0;
}
int SimulatedVerbs::post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  Pair& pair = *object_of<Pair>(qp);
  for (ibv_send_wr* posted = requests; posted != nullptr; posted = posted->next) {
    const bool inlined = (posted->send_flags & IBV_SEND_INLINE) != 0;
    const ibv_sge& piece = *posted->sg_list;
    *bad = posted;
    if (pair.requests.size() == pair.send_requests) return ENOMEM;
    if (inlined && piece.length > pair.inline_bytes) return EINVAL;
    Request& request = pair.requests.emplace_back();
    request.id = posted->wr_id;
    request.opcode = posted->opcode;
    request.signalled = (posted->send_flags & IBV_SEND_SIGNALED) != 0;
    request.bytes = piece.length;
    request.address = posted->wr.rdma.remote_addr;
    request.key = posted->wr.rdma.rkey;
    if (inlined) {
      const auto* const from = reinterpret_cast<const std::byte*>(piece.addr);
      request.inlined.assign(from, from + piece.length);
    } else {
      request.data = place_of(piece.lkey, piece.addr, piece.length, false);
    }
  }
  if (!hold) run(pair);
  return 0;
}

void SimulatedVerbs::run(Pair& pair) {
  while (!pair.requests.empty() && pair.state == IBV_QPS_RTS) {
    const Request request = std::move(pair.requests.front());
    pair.requests.pop_front();
    const ibv_wc_status status = execute(pair, request);
    const ibv_wc_opcode opcode = request.opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
    if (status != IBV_WC_SUCCESS || request.signalled) {
      complete(*pair.queue, request.id, status, opcode, 0, pair.handle.qp_num);
    }
    if (status != IBV_WC_SUCCESS) break_pair(pair);
  }
  if (pair.state == IBV_QPS_ERR) break_pair(pair);
}

ibv_wc_status SimulatedVerbs::execute(Pair& pair, const Request& request) {
  const std::byte* const data = request.inlined.empty() ? request.data : request.inlined.data();
  if (data == nullptr) return IBV_WC_LOC_PROT_ERR;
  const auto found = qps_.find(pair.peer);
  if (found == qps_.end() || found->second->state == IBV_QPS_ERR) return IBV_WC_RETRY_EXC_ERR;
  Pair& peer = *found->second;
  if (request.opcode == IBV_WR_SEND) {
    const ibv_wc_status wanted = std::exchange(next_send_status, IBV_WC_SUCCESS);
    if (wanted != IBV_WC_SUCCESS) return wanted;
    if (peer.receives.empty()) {
      ++not_ready;
      return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    const auto [id, piece] = peer.receives.front();
    peer.receives.pop_front();
    std::byte* const place = place_of(piece.lkey, piece.addr, piece.length, false);
    if (place == nullptr || request.bytes > piece.length) return IBV_WC_REM_OP_ERR;
    std::memcpy(place, data, request.bytes);
    complete(*peer.queue, id, IBV_WC_SUCCESS, IBV_WC_RECV, static_cast<uint32_t>(request.bytes),
             peer.handle.qp_num);
    return IBV_WC_SUCCESS;
  }
  const bool allowed = (peer.access & IBV_ACCESS_REMOTE_WRITE) != 0;
  std::byte* const place = allowed ? place_of(request.key, request.address, request.bytes, true) : nullptr;
  if (place == nullptr) {
    break_pair(peer);
    peer.context->events.push({IBV_EVENT_QP_ACCESS_ERR, peer.handle.qp_num, 0});
    return IBV_WC_REM_ACCESS_ERR;
  }
  std::memcpy(place, data, request.bytes);
  return IBV_WC_SUCCESS;
}

void SimulatedVerbs::break_pair(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (const Request& request : pair.requests) {
    complete(*pair.queue, request.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0, pair.handle.qp_num);
  }
  for (const auto& [id, piece] : pair.receives) {
    complete(*pair.queue, id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, pair.handle.qp_num);
  }
  pair.requests.clear();
  pair.receives.clear();
}

}  // namespace hdt::transport::rdma
