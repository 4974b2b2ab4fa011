// hdt.hpp: C++ (17 and later) over hdt.h, with all of its calls. Objects own what handles name, buffers know
// their length and element type, and failures are exceptions. Header-only: a program links libhdt alone, and
// may use both headers. Rules, units and codes are those of hdt.h; this header says what it adds to them.
//
// Errors. Every function throws hdt::Error if its call fails, except for destructors, moves and functions
// that are noexcept. A call that throws has not begun an operation, or its operation has ended. Buffers that
// do not fit together are refused before that, on the calling rank alone; others then wait for its call.
//
// Lifetime. Buffers, and what recv_any() writes the source to, belong to an operation from its call until
// it has ended. Declare them before the Request or the CallGroup that refers to them: objects of a scope are
// destroyed in reverse order, and the destructors of both wait until their operations have ended, at most
// until the communicator's deadline. When an exception leaves a scope while other ranks wait for this one,
// call Communicator::abort() first if nobody is to wait so long. A Request and a PreMulSum may outlive their
// Communicator; a moved Communicator keeps its handle, so they stay valid.
//
// Thread safety. Any thread may call any function of a Communicator, in the order that hdt.h asks for; one
// moves or destroys it while no other uses it. A Request, a Memory and a PreMulSum are for one thread at a
// time, and a CallGroup for the thread that made it.
//
// Element types. Integers, float and double have theirs by TypeOf, and so has std::byte. For the 16-bit and
// 8-bit floats, which have no type in C++17, pass the type with the buffer, {pointer, count, HDT_BFLOAT16},
// or specialise TypeOf for the type that the program uses:
//     template <> struct hdt::TypeOf<c10::BFloat16> : std::integral_constant<hdtDataType_t, HDT_BFLOAT16> {};
#ifndef HDT_HDT_HPP
#define HDT_HDT_HPP

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hdt/buffer.hpp"
#include "hdt/hdt.h"

namespace hdt {

// --- requests and groups of calls -----------------------------------------------------------------------

// An operation under way. Movable, not copyable; a default-made one names no operation and counts as
// complete. The destructor waits until the operation has ended, as its buffers must not go away before that;
// a failure is then dropped, so call wait() if it matters.
class Request {
 public:
  Request() = default;
  // Takes over a request of hdt.h.
  explicit Request(hdtRequest_t request) noexcept : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  // Swaps: the operation that this object had is waited for when `other` is destroyed.
  Request& operator=(Request&& other) noexcept {
    std::swap(request_, other.request_);
    return *this;
  }
  ~Request() {
    if (request_ != nullptr) (void)hdtWait(&request_, -1);
  }
  // Whether it names an operation that wait(), wait_for() and test() have not seen complete.
  explicit operator bool() const noexcept { return request_ != nullptr; }
  // Returns when the operation is complete, at the latest at the communicator's deadline.
  void wait() { check(hdtWait(&request_, -1)); }
  // False if it is not complete after `timeout`; the operation then goes on. Negative: as wait().
  bool wait_for(std::chrono::milliseconds timeout) {
    const hdtResult_t result = hdtWait(&request_, timeout.count());
    // A communicator that has failed at its own deadline gives the same code, but frees the request.
    if (result == HDT_ERR_TIMEOUT && request_ != nullptr) return false;
    check(result);
    return true;
  }
  // Whether it is complete. Does not wait.
  bool test() {
    const hdtResult_t result = hdtTest(&request_);
    if (result == HDT_IN_PROGRESS) return false;
    check(result);
    return true;
  }
  // Has call(argument) made once it is complete, from within the library: hdtWhenDone says what it may do.
  void when_done(void (*call)(void*), void* argument) { check(hdtWhenDone(request_, call, argument)); }
  // Gives the request away: the caller completes it by hdtWait or hdtTest.
  hdtRequest_t release() noexcept { return std::exchange(request_, nullptr); }

 private:
  hdtRequest_t request_ = nullptr;
};

// The calls that this thread makes from the constructor to end() are under way together (hdtGroupStart,
// hdtGroupEnd): sends and receives in them cannot wait for one another, and blocking calls return at once.
// Their buffers belong to them until end(). Groups of calls may be nested; the outermost end() waits.
class CallGroup {
 public:
  CallGroup() { check(hdtGroupStart()); }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  // As end(), but drops the failure; so call end() if it matters.
  ~CallGroup() {
    if (open_) (void)hdtGroupEnd();
  }
  // Waits for the blocking calls, and throws the first failure among them. To be called once.
  void end() {
    open_ = false;
    check(hdtGroupEnd());
  }

 private:
  bool open_ = true;
};

// --- groups of ranks ------------------------------------------------------------------------------------

// A rank's membership in a group. Movable, not copyable: a moved-from one has no group, and every call on it
// throws HDT_ERR_INVALID_ARGUMENT. The destructor leaves the group. It waits for this rank's operations
// before, and drops how they ended (hdtCommDestroy).
class Communicator {
 public:
  // The group of this job (hdtCommInit). Like every call that makes a group, it blocks until all have joined.
  explicit Communicator(const hdtCommConfig_t* config = nullptr) : Communicator(Empty()) {
    check(hdtCommInit(&comm_, config));
    learn_place();
  }
  // The group of an id of unique_id() (hdtCommInitRank).
  Communicator(int nranks, const hdtUniqueId_t& id, int rank, const hdtCommConfig_t* config = nullptr)
      : Communicator(Empty()) {
    check(hdtCommInitRank(&comm_, nranks, id, rank, config));
    learn_place();
  }
  // Takes over a handle of hdt.h. If it throws, the handle has ended.
  static Communicator adopt(hdtComm_t comm) {
    Communicator made{Empty()};
    made.comm_ = comm;
    made.learn_place();
    return made;
  }
  Communicator(Communicator&& other) noexcept : Communicator(Empty()) { *this = std::move(other); }
  // Swaps: the group that this object had is left when `other` is destroyed.
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Communicator() { (void)hdtCommDestroy(comm_); }

  // The handle, for calls of hdt.h; it stays this object's.
  hdtComm_t get() const noexcept { return comm_; }
  // Gives the handle away: the caller ends it by hdtCommDestroy.
  hdtComm_t release() noexcept {
    Communicator away(std::move(*this));
    return std::exchange(away.comm_, nullptr);
  }
  // This rank, from 0, and the number of ranks. They never change.
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // The number of nodes of the group, and the node (from 0) on which a rank runs.
  int nodes() const { return ask(hdtCommNodes); }
  int node_of(int rank) const {
    int node = 0;
    check(hdtCommNodeOf(comm_, rank, &node));
    return node;
  }
  // The counts by rank, of `count` elements in all, with which reduce_scatter_v and all_gather_v finish
  // soonest (hdtSuggestCounts).
  std::vector<size_t> suggest_counts(size_t count, hdtDataType_t type) const {
    std::vector<size_t> counts(static_cast<size_t>(size_));
    check(hdtSuggestCounts(comm_, count, type, counts.data()));
    return counts;
  }

  // Collective over the group (hdtCommSplit): ranks of one color form a new group, in the order of their
  // keys. Nothing for a rank that passes HDT_SPLIT_NO_COLOR.
  std::optional<Communicator> split(int color, int key, const hdtCommConfig_t* config = nullptr) {
    hdtComm_t made = nullptr;
    check(hdtCommSplit(comm_, color, key, &made, config));
    if (made == nullptr) return std::nullopt;
    return adopt(made);
  }
  // A group of all ranks except for `excluded` (hdtCommShrink); every rank that is not in it calls this.
  // Works if the group has failed, too.
  Communicator shrink(const std::vector<int>& excluded, const hdtCommConfig_t* config = nullptr) {
    hdtComm_t made = nullptr;
    check(hdtCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &made, config));
    return adopt(made);
  }
  void set_timeout(std::chrono::milliseconds of_later) { check(hdtCommSetTimeout(comm_, of_later.count())); }
  void set_samples(uint64_t of_a_step) { check(hdtCommSetSamples(comm_, of_a_step)); }
  // Ends all operations of the group with HDT_ERR_ABORTED, on every rank. Does not wait for them.
  void abort() { check(hdtCommAbort(comm_)); }
  // HDT_SUCCESS while the group works, else the code of its failure; the rank that it is about, -1 if none;
  // its message, "" while the group works. None of them blocks.
  hdtResult_t async_error() const {
    hdtResult_t error = HDT_SUCCESS;
    check(hdtCommGetAsyncError(comm_, &error));
    return error;
  }
  int failed_rank() const { return ask(hdtCommFailedRank); }
  std::string error_message() const { return hdtCommErrorMessage(comm_); }

  // Operations. Each has two forms. The plain one returns when the operation is complete (or at once inside a
  // CallGroup). The one whose name ends in _async returns at once; its buffers must stay valid and untouched
  // until the Request has ended. All buffers of a call have one element type. "n" is a count that is the same
  // on all ranks; lengths that are given here are checked, on the ranks where the buffer is used.

  // recv[i] = op over ranks of send[i]. Both: n.
  void all_reduce(SendBuffer send, RecvBuffer recv, hdtRedOp_t op = HDT_SUM) {
    start_all_reduce(send, recv, op, nullptr);
  }
  Request all_reduce_async(SendBuffer send, RecvBuffer recv, hdtRedOp_t op = HDT_SUM) {
    return async(&Communicator::start_all_reduce, send, recv, op);
  }
  // In place.
  void all_reduce(RecvBuffer data, hdtRedOp_t op = HDT_SUM) { all_reduce(data, data, op); }
  Request all_reduce_async(RecvBuffer data, hdtRedOp_t op = HDT_SUM) {
    return all_reduce_async(data, data, op);
  }

  // As all_reduce, on `root` only. send: n; recv: n on root, not used and may be {} elsewhere.
  void reduce(SendBuffer send, RecvBuffer recv, int root, hdtRedOp_t op = HDT_SUM) {
    start_reduce(send, recv, root, op, nullptr);
  }
  Request reduce_async(SendBuffer send, RecvBuffer recv, int root, hdtRedOp_t op = HDT_SUM) {
    return async(&Communicator::start_reduce, send, recv, root, op);
  }

  // recv[i] = op over ranks of send[rank() * n + i]. send: size() * n, recv: n.
  void reduce_scatter(SendBuffer send, RecvBuffer recv, hdtRedOp_t op = HDT_SUM) {
    start_reduce_scatter(send, recv, op, nullptr);
  }
  Request reduce_scatter_async(SendBuffer send, RecvBuffer recv, hdtRedOp_t op = HDT_SUM) {
    return async(&Communicator::start_reduce_scatter, send, recv, op);
  }

  // recv[r * n + i] = rank r's send[i]. send: n, recv: size() * n.
  void all_gather(SendBuffer send, RecvBuffer recv) { start_all_gather(send, recv, nullptr); }
  Request all_gather_async(SendBuffer send, RecvBuffer recv) {
    return async(&Communicator::start_all_gather, send, recv);
  }

  // recv = root's send. send: n on root, not used and may be {} elsewhere; recv: n.
  void broadcast(SendBuffer send, RecvBuffer recv, int root) { start_broadcast(send, recv, root, nullptr); }
  Request broadcast_async(SendBuffer send, RecvBuffer recv, int root) {
    return async(&Communicator::start_broadcast, send, recv, root);
  }
  // In place: read on root, written on the other ranks.
  void broadcast(RecvBuffer data, int root) { broadcast(data, data, root); }
  Request broadcast_async(RecvBuffer data, int root) { return broadcast_async(data, data, root); }

  // The next four are made of sends and receives, and match those in call order (hdt.h says more).

  // root's recv[r * n + i] = rank r's send[i]. send: n; recv: size() * n on root, not used elsewhere.
  void gather(SendBuffer send, RecvBuffer recv, int root) { start_gather(send, recv, root, nullptr); }
  Request gather_async(SendBuffer send, RecvBuffer recv, int root) {
    return async(&Communicator::start_gather, send, recv, root);
  }

  // recv[i] = root's send[rank() * n + i]. send: size() * n on root, not used elsewhere; recv: n.
  void scatter(SendBuffer send, RecvBuffer recv, int root) { start_scatter(send, recv, root, nullptr); }
  Request scatter_async(SendBuffer send, RecvBuffer recv, int root) {
    return async(&Communicator::start_scatter, send, recv, root);
  }

  // recv[r * n + i] = rank r's send[rank() * n + i]. Both: size() * n.
  void all_to_all(SendBuffer send, RecvBuffer recv) { start_all_to_all(send, recv, nullptr); }
  Request all_to_all_async(SendBuffer send, RecvBuffer recv) {
    return async(&Communicator::start_all_to_all, send, recv);
  }

  // To rank r go sendcounts[r] elements from send[senddispls[r]] on, from it come recvcounts[r] elements to
  // recv[recvdispls[r]]. Every block must lie within its buffer.
  void all_to_all_v(SendBuffer send, PerRank sendcounts, PerRank senddispls, RecvBuffer recv,
                    PerRank recvcounts, PerRank recvdispls) {
    start_all_to_all_v(send, sendcounts, senddispls, recv, recvcounts, recvdispls, nullptr);
  }
  Request all_to_all_v_async(SendBuffer send, PerRank sendcounts, PerRank senddispls, RecvBuffer recv,
                             PerRank recvcounts, PerRank recvdispls) {
    return async(&Communicator::start_all_to_all_v, send, sendcounts, senddispls, recv, recvcounts,
                 recvdispls);
  }

  // recv[recvdispls[r] + i] = rank r's send[i], i < recvcounts[r]. send: recvcounts[rank()]; every block must
  // lie within recv. recvcounts are the same on all ranks.
  void all_gather_v(SendBuffer send, RecvBuffer recv, PerRank recvcounts, PerRank recvdispls) {
    start_all_gather_v(send, recv, recvcounts, recvdispls, nullptr);
  }
  Request all_gather_v_async(SendBuffer send, RecvBuffer recv, PerRank recvcounts, PerRank recvdispls) {
    return async(&Communicator::start_all_gather_v, send, recv, recvcounts, recvdispls);
  }

  // As reduce_scatter with a count for every rank. send: the sum of recvcounts, the blocks of the ranks one
  // after the other; recv: recvcounts[rank()]. recvcounts are the same on all ranks.
  void reduce_scatter_v(SendBuffer send, RecvBuffer recv, PerRank recvcounts, hdtRedOp_t op = HDT_SUM) {
    start_reduce_scatter_v(send, recv, recvcounts, op, nullptr);
  }
  Request reduce_scatter_v_async(SendBuffer send, RecvBuffer recv, PerRank recvcounts,
                                 hdtRedOp_t op = HDT_SUM) {
    return async(&Communicator::start_reduce_scatter_v, send, recv, recvcounts, op);
  }

  // Complete when every rank of the group has entered it.
  void barrier() { start_barrier(nullptr); }
  Request barrier_async() { return async(&Communicator::start_barrier); }

  // Point to point: the n-th send from a to b matches the n-th receive at b from a, of as many bytes.
  void send(SendBuffer data, int peer) { start_send(data, peer, nullptr); }
  Request send_async(SendBuffer data, int peer) { return async(&Communicator::start_send, data, peer); }
  void recv(RecvBuffer data, int peer) { start_recv(data, peer, nullptr); }
  Request recv_async(RecvBuffer data, int peer) { return async(&Communicator::start_recv, data, peer); }
  // From whichever rank's message is there first; on completion *from is that rank, unless `from` is null.
  void recv_any(RecvBuffer data, int* from) { start_any(data, from, nullptr); }
  Request recv_any_async(RecvBuffer data, int* from) { return async(&Communicator::start_any, data, from); }
  // Both at once: neither waits for the other.
  void send_recv(SendBuffer send, int dest, RecvBuffer recv, int source) {
    start_send_recv(send, dest, recv, source, nullptr);
  }
  Request send_recv_async(SendBuffer send, int dest, RecvBuffer recv, int source) {
    return async(&Communicator::start_send_recv, send, dest, recv, source);
  }

 private:
  struct Empty {};
  // Complete before the call that makes the handle, so that the destructor runs if something after it throws.
  explicit Communicator(Empty) noexcept {}
  void learn_place() { rank_ = ask(hdtCommUserRank), size_ = ask(hdtCommCount); }
  int ask(hdtResult_t (*call)(hdtComm_t, int*)) const {
    int number = 0;
    check(call(comm_, &number));
    return number;
  }

  // Runs the _async form of an operation by its start_ function.
  template <typename Start, typename... Args>
  Request async(Start start, Args... args) {
    hdtRequest_t request = nullptr;
    (this->*start)(args..., &request);
    return Request(request);
  }

  // The start_ functions check what only this header knows, the lengths and types of both buffers, and make
  // the call. hdt.h has one count and one type for both.
  [[noreturn]] static void refuse(const char* call, const std::string& why) {
    throw Error(HDT_ERR_INVALID_ARGUMENT, std::string(call) + ": " + why);
  }
  hdtDataType_t common_type(const char* call, const SendBuffer& send, const RecvBuffer& recv) const {
    if (comm_ == nullptr) refuse(call, "this communicator has no group, as it was moved or released");
    if (!send.has_type() && !recv.has_type()) refuse(call, "neither buffer has an element type");
    if (send.has_type() && recv.has_type() && send.type() != recv.type()) {
      refuse(call, std::string("send holds ") + type_name(send.type()) + ", recv " + type_name(recv.type()));
    }
    return send.has_type() ? send.type() : recv.type();
  }
  static void expect_count(const char* call, const char* what, size_t has, size_t needs) {
    if (has != needs) {
      refuse(call, std::string(what) + " has " + std::to_string(has) + " elements, and " +
                       std::to_string(needs) + " are needed");
    }
  }
  size_t for_all(size_t count) const { return count * static_cast<size_t>(size_); }
  size_t of_mine(const char* call, const PerRank& counts) const {
    expect_count(call, "an array for all ranks", counts.size(), for_all(1));
    return counts[static_cast<size_t>(rank_)];
  }
  void expect_blocks(const char* call, const char* what, size_t has, const PerRank& counts,
                     const PerRank& displs) const {
    expect_count(call, "an array for all ranks", counts.size(), for_all(1));
    expect_count(call, "an array for all ranks", displs.size(), for_all(1));
    for (size_t r = 0; r < counts.size(); ++r) {
      if (displs[r] <= has && counts[r] <= has - displs[r]) continue;
      refuse(call, "the block of rank " + std::to_string(r) + " ends behind the " + std::to_string(has) +
                       " elements of " + what);
    }
  }

  void start_all_reduce(SendBuffer send, RecvBuffer recv, hdtRedOp_t op, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("all_reduce", send, recv);
    expect_count("all_reduce", "recv", recv.count(), send.count());
    check(hdtAllReduce(send.data(), recv.data(), send.count(), type, op, comm_, request));
  }
  void start_reduce(SendBuffer send, RecvBuffer recv, int root, hdtRedOp_t op, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("reduce", send, recv);
    if (root == rank_) expect_count("reduce", "recv", recv.count(), send.count());
    check(hdtReduce(send.data(), recv.data(), send.count(), type, op, root, comm_, request));
  }
  void start_reduce_scatter(SendBuffer send, RecvBuffer recv, hdtRedOp_t op, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("reduce_scatter", send, recv);
    expect_count("reduce_scatter", "send", send.count(), for_all(recv.count()));
    check(hdtReduceScatter(send.data(), recv.data(), recv.count(), type, op, comm_, request));
  }
  void start_all_gather(SendBuffer send, RecvBuffer recv, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("all_gather", send, recv);
    expect_count("all_gather", "recv", recv.count(), for_all(send.count()));
    check(hdtAllGather(send.data(), recv.data(), send.count(), type, comm_, request));
  }
  void start_broadcast(SendBuffer send, RecvBuffer recv, int root, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("broadcast", send, recv);
    if (root == rank_) expect_count("broadcast", "send", send.count(), recv.count());
    check(hdtBroadcast(send.data(), recv.data(), recv.count(), type, root, comm_, request));
  }
  void start_gather(SendBuffer send, RecvBuffer recv, int root, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("gather", send, recv);
    if (root == rank_) expect_count("gather", "recv", recv.count(), for_all(send.count()));
    check(hdtGather(send.data(), recv.data(), send.count(), type, root, comm_, request));
  }
  void start_scatter(SendBuffer send, RecvBuffer recv, int root, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("scatter", send, recv);
    if (root == rank_) expect_count("scatter", "send", send.count(), for_all(recv.count()));
    check(hdtScatter(send.data(), recv.data(), recv.count(), type, root, comm_, request));
  }
  void start_all_to_all(SendBuffer send, RecvBuffer recv, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("all_to_all", send, recv);
    const size_t count = send.count() / for_all(1);
    expect_count("all_to_all", "send", send.count(), for_all(count));
    expect_count("all_to_all", "recv", recv.count(), send.count());
    check(hdtAllToAll(send.data(), recv.data(), count, type, comm_, request));
  }
  void start_all_to_all_v(SendBuffer send, PerRank sendcounts, PerRank senddispls, RecvBuffer recv,
                          PerRank recvcounts, PerRank recvdispls, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("all_to_all_v", send, recv);
    expect_blocks("all_to_all_v", "send", send.count(), sendcounts, senddispls);
    expect_blocks("all_to_all_v", "recv", recv.count(), recvcounts, recvdispls);
    check(hdtAllToAllV(send.data(), sendcounts.data(), senddispls.data(), recv.data(), recvcounts.data(),
                       recvdispls.data(), type, comm_, request));
  }
  void start_all_gather_v(SendBuffer send, RecvBuffer recv, PerRank recvcounts, PerRank recvdispls,
                          hdtRequest_t* request) {
    const hdtDataType_t type = common_type("all_gather_v", send, recv);
    expect_count("all_gather_v", "send", send.count(), of_mine("all_gather_v", recvcounts));
    expect_blocks("all_gather_v", "recv", recv.count(), recvcounts, recvdispls);
    check(
        hdtAllGatherV(send.data(), recv.data(), recvcounts.data(), recvdispls.data(), type, comm_, request));
  }
  void start_reduce_scatter_v(SendBuffer send, RecvBuffer recv, PerRank recvcounts, hdtRedOp_t op,
                              hdtRequest_t* request) {
    const hdtDataType_t type = common_type("reduce_scatter_v", send, recv);
    expect_count("reduce_scatter_v", "recv", recv.count(), of_mine("reduce_scatter_v", recvcounts));
    size_t all = 0;
    for (size_t r = 0; r < recvcounts.size(); ++r) all += recvcounts[r];
    expect_count("reduce_scatter_v", "send", send.count(), all);
    check(hdtReduceScatterV(send.data(), recv.data(), recvcounts.data(), type, op, comm_, request));
  }
  void start_barrier(hdtRequest_t* request) { check(hdtBarrier(comm_, request)); }
  void start_send(SendBuffer data, int peer, hdtRequest_t* request) {
    check(hdtSend(data.data(), data.count(), common_type("send", data, {}), peer, comm_, request));
  }
  void start_recv(RecvBuffer data, int peer, hdtRequest_t* request) {
    check(hdtRecv(data.data(), data.count(), common_type("recv", {}, data), peer, comm_, request));
  }
  void start_any(RecvBuffer data, int* from, hdtRequest_t* request) {
    check(hdtRecvAny(data.data(), data.count(), common_type("recv_any", {}, data), from, comm_, request));
  }
  void start_send_recv(SendBuffer send, int dest, RecvBuffer recv, int source, hdtRequest_t* request) {
    const hdtDataType_t type = common_type("send_recv", send, recv);
    check(hdtSendRecv(send.data(), send.count(), dest, recv.data(), recv.count(), source, type, comm_,
                      request));
  }

  hdtComm_t comm_ = nullptr;
  int rank_ = 0;
  int size_ = 0;
};

// A reduction that sums the contributions of all ranks, each multiplied by this rank's `scalar`
// (hdtRedOpCreatePreMulSum). It is passed in the place of HDT_SUM to operations of its communicator, with
// elements of the scalar's type; every rank of such a call passes one. Making it is no collective. Movable,
// not copyable. It may be destroyed before the operations that were begun with it are complete.
class PreMulSum {
 public:
  template <typename T>
  PreMulSum(const Communicator& comm, const T& scalar) : PreMulSum(comm, &scalar, TypeOf<T>::value) {}
  // One element at `scalar`, of a type that is named.
  PreMulSum(const Communicator& comm, const void* scalar, hdtDataType_t type) : comm_(comm.get()) {
    check(hdtRedOpCreatePreMulSum(&op_, scalar, type, comm_));
  }
  PreMulSum(PreMulSum&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), op_(std::exchange(other.op_, HDT_RED_OP_LARGEST)) {}
  // Swaps: the reduction that this object had is destroyed with `other`.
  PreMulSum& operator=(PreMulSum&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(op_, other.op_);
    return *this;
  }
  // The communicator may have gone before, and its reductions with it.
  ~PreMulSum() {
    if (comm_ != nullptr) (void)hdtRedOpDestroy(op_, comm_);
  }
  operator hdtRedOp_t() const noexcept { return op_; }

 private:
  hdtComm_t comm_;
  hdtRedOp_t op_ = HDT_RED_OP_LARGEST;
};

}  // namespace hdt

#endif  // HDT_HDT_HPP
