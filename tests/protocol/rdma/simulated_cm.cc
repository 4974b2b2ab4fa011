// simulated_cm.cc: rdma_cm of SimulatedVerbs: who listens, requests and replies.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/protocol/rdma/simulated_objects.h"

namespace hdt::transport::rdma {

namespace {

std::string host_of(const sockaddr* address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  return text;
}

bool same(const rdma_addr& a, const sockaddr_storage& b) {
  const auto& right = reinterpret_cast<const sockaddr_in&>(b);
  return a.src_sin.sin_port == right.sin_port && a.src_sin.sin_addr.s_addr == right.sin_addr.s_addr;
}

}  // namespace

rdma_event_channel* SimulatedVerbs::create_event_channel() {
  auto* const channel = new Channel;
  channel->handle.fd = channel->events.fd();
  return &channel->handle;
}
void SimulatedVerbs::destroy_event_channel(rdma_event_channel* channel) {
  delete reinterpret_cast<Channel*>(channel);
}
bool SimulatedVerbs::next_cm_event(rdma_event_channel* channel, CmEvent& event) {
  return reinterpret_cast<Channel*>(channel)->events.pop(event);
}

void SimulatedVerbs::tell(Id* id, rdma_cm_event_type type, int status, const void* data, size_t bytes) {
  if (id == nullptr) return;
  CmEvent event;
  event.type = type;
  event.status = status;
  event.id = &id->handle;
  event.private_bytes = bytes;
  if (bytes > 0) std::memcpy(event.private_data.data(), data, bytes);
  for (const auto& [place, value] : mangled) event.private_data[place] = value;
  id->channel->events.push(event);
}

void SimulatedVerbs::raise_cm(rdma_cm_event_type type, int status) {
  for (Id* id : ids_) {
    if (id->connected || id->listens) tell(id, type, status);
  }
}

rdma_cm_id* SimulatedVerbs::create_id(rdma_event_channel* channel, void* context) {
  auto* const id = new Id;
  id->channel = reinterpret_cast<Channel*>(channel);
  id->handle.channel = channel;
  id->handle.context = context;
  id->handle.port_num = 1;
  ids_.insert(id);
  return &id->handle;
}
void SimulatedVerbs::destroy_id(rdma_cm_id* handle) {
  Id* const id = reinterpret_cast<Id*>(handle);
  if (id->connected) disconnect(handle);
  if (id->peer != nullptr) id->peer->peer = nullptr;
  id->channel->events.remove_if([handle](const CmEvent& event) { return event.id == handle; });
  ids_.erase(id);
  delete id;
}

int SimulatedVerbs::bind(rdma_cm_id* handle, const sockaddr* address) {
  Id* const id = reinterpret_cast<Id*>(handle);
  const std::string host = host_of(address);
  if (host.rfind("127.0.2.", 0) != 0) return host.rfind("127.", 0) == 0 ? ENODEV : EADDRNOTAVAIL;
  id->device = "sim" + host.substr(8);
  std::memcpy(&handle->route.addr.src_sin, address, sizeof(sockaddr_in));
  if (handle->route.addr.src_sin.sin_port == 0) {
    handle->route.addr.src_sin.sin_port = htons(static_cast<uint16_t>(10'000 + next_number_++ % 50'000));
  }
  return 0;
}
std::string SimulatedVerbs::device_of(const rdma_cm_id* id) {
  return reinterpret_cast<const Id*>(id)->device;
}
int SimulatedVerbs::listen(rdma_cm_id* id, int) {
  reinterpret_cast<Id*>(id)->listens = true;
  return 0;
}
int SimulatedVerbs::resolve_address(rdma_cm_id* id, const sockaddr* remote, int) {
  std::memcpy(&id->route.addr.dst_sin, remote, sizeof(sockaddr_in));
  if (silent.count(host_of(remote)) == 0) tell(reinterpret_cast<Id*>(id), RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}
int SimulatedVerbs::resolve_route(rdma_cm_id* id, int) {
  tell(reinterpret_cast<Id*>(id), RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int SimulatedVerbs::connect(rdma_cm_id* handle, rdma_conn_param& parameters) {
  Id* const id = reinterpret_cast<Id*>(handle);
  id->qp_number = parameters.qp_num;
  const auto listener = std::find_if(ids_.begin(), ids_.end(), [&](const Id* other) {
    return other->listens && same(other->handle.route.addr, handle->route.addr.dst_storage);
  });
  if (reject_status != 0 || listener == ids_.end()) {
    tell(id, RDMA_CM_EVENT_REJECTED, reject_status != 0 ? reject_status : 8);
    return 0;
  }
  Id* const made = reinterpret_cast<Id*>(create_id(&(*listener)->channel->handle, nullptr));
  made->device = (*listener)->device;
  made->handle.route.addr.src_sin = (*listener)->handle.route.addr.src_sin;
  made->handle.route.addr.dst_sin = handle->route.addr.src_sin;
  made->peer = id;
  id->peer = made;
  tell(made, RDMA_CM_EVENT_CONNECT_REQUEST, 0, parameters.private_data, parameters.private_data_len);
  return 0;
}
int SimulatedVerbs::accept(rdma_cm_id* handle, rdma_conn_param& parameters) {
  Id* const id = reinterpret_cast<Id*>(handle);
  id->qp_number = parameters.qp_num;
  id->connected = true;
  tell(id->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, parameters.private_data, parameters.private_data_len);
  return 0;
}
int SimulatedVerbs::reject(rdma_cm_id* id, const void* data, size_t bytes) {
  tell(reinterpret_cast<Id*>(id)->peer, RDMA_CM_EVENT_REJECTED, 28, data, bytes);
  return 0;
}
int SimulatedVerbs::establish(rdma_cm_id* handle) {
  Id* const id = reinterpret_cast<Id*>(handle);
  id->connected = true;
  tell(id->peer, RDMA_CM_EVENT_ESTABLISHED);
  return 0;
}
int SimulatedVerbs::disconnect(rdma_cm_id* handle) {
  Id* const id = reinterpret_cast<Id*>(handle);
  if (!id->connected) return EINVAL;
  id->connected = false;
  tell(id->peer, RDMA_CM_EVENT_DISCONNECTED);
  return 0;
}

int SimulatedVerbs::qp_attributes(rdma_cm_id* handle, ibv_qp_attr& attributes, int& mask) {
  Id* const id = reinterpret_cast<Id*>(handle);
  attributes.port_num = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.sgid_index = 1;
  attributes.dest_qp_num = id->peer == nullptr ? 0 : id->peer->qp_number;
  mask = IBV_QP_STATE;
  return 0;
}

}  // namespace hdt::transport::rdma
