// process_group.cc: the calls of torch.distributed, one by one, as calls of libhdt. See process_group.h.
#include "process_group.h"

#include "call.h"

namespace hdt_torch {

namespace {

using c10d::OpType;

// How much longer than rank 0 the others wait for what it says about a monitored barrier.
constexpr Milliseconds kVerdict{1'000};

// The one tensor of a list: more than one was for several devices of a process.
at::Tensor& one(Tensors& tensors, const char* call) {
  require(tensors.size() == 1, call, ": ", tensors.size(), " tensors given; expected 1");
  return tensors[0];
}

// The list of a rank's tensors, one for each rank of the group.
Tensors& one_for_each(TensorLists& lists, size_t size, const char* call) {
  require(lists.size() == 1, call, ": ", lists.size(), " lists given; expected 1");
  require(lists[0].size() == size, call, ": ", lists[0].size(), " tensors given; expected one for each of ",
          size, " ranks");
  return lists[0];
}

void require_same_type(const Tensors& tensors, const at::Tensor& like, const char* call) {
  for (const at::Tensor& tensor : tensors) {
    require(tensor.scalar_type() == like.scalar_type(), call, ": tensors of ", tensor.scalar_type(), " and ",
            like.scalar_type(), " given; expected one type");
  }
}

size_t root_of(int64_t rank, size_t size, const char* call) {
  const auto root = static_cast<size_t>(rank);
  require(root < size, call, ": root ", rank, " given; the group has ", size, " ranks");
  return root;
}

// The tensors that the root alone has, one for each rank of the group, of the type of `like`; none elsewhere.
Tensors lists_of_root(TensorLists& lists, bool is_root, const at::Tensor& like, size_t size,
                      const char* call) {
  if (!is_root) {
    require(lists.empty(), call, ": a list given on a rank that is not the root");
    return {};
  }
  Tensors& tensors = one_for_each(lists, size, call);
  require_same_type(tensors, like, call);
  return tensors;
}

void require_count(const at::Tensor& tensor, int64_t expected, const char* call, const char* which) {
  require(tensor.numel() == expected, call, ": ", which, " has ", tensor.numel(), " elements; expected ",
          expected);
}

std::vector<size_t> counts_of(const Tensors& tensors) {
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(count_of(tensor));
  return counts;
}

bool all_equal(const std::vector<size_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](size_t count) { return count == counts[0]; });
}

std::vector<size_t> displacements_of(const std::vector<size_t>& counts) {
  std::vector<size_t> found;
  size_t at = 0;
  for (const size_t count : counts) {
    found.push_back(at);
    at += count;
  }
  return found;
}

// Elements for each rank, of a tensor whose rows are split; no splits: equal ones.
std::vector<size_t> split_counts(const std::vector<int64_t>& splits, const at::Tensor& tensor, size_t size,
                                 const char* call) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (splits.empty()) {
    require(rows % static_cast<int64_t>(size) == 0, call, ": ", rows, " rows given; expected a multiple of ",
            size);
    return std::vector<size_t>(size, count_of(tensor) / size);
  }
  require(splits.size() == size, call, ": ", splits.size(), " splits given; expected one for each of ", size,
          " ranks");
  std::vector<size_t> counts;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    require(split >= 0, call, ": a split of ", split, " rows");
    sum += split;
    counts.push_back(rows == 0 ? 0
                               : static_cast<size_t>(split) * (count_of(tensor) / static_cast<size_t>(rows)));
  }
  require(sum == rows, call, ": splits for ", sum, " rows given; the tensor has ", rows);
  return counts;
}

}  // namespace

// --- one tensor to or from all -----------------------------------------------------------------------------

WorkRef ProcessGroupHDT::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call(*this, OpType::BROADCAST, "hdt:broadcast", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  require(options.rootTensor == 0, call.name(), ": root tensor ", options.rootTensor, " given; expected 0");
  void* const data = rank_ == options.rootRank ? call.in_out(tensor) : call.out(tensor);
  call.begin([&](hdtRequest_t* request) {
    return hdtBroadcast(data, data, count_of(tensor), element_of(tensor.scalar_type()).type,
                        static_cast<int>(options.rootRank), call.comm(), request);
  });
  return call.work(tensors);
}

WorkRef ProcessGroupHDT::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Call call(*this, OpType::ALLREDUCE, "hdt:all_reduce", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  void* const data = call.in_out(tensor);
  const Reduction reduction(options.reduceOp, tensor.scalar_type(), call.comm(), call.name());
  call.begin([&](hdtRequest_t* request) {
    return hdtAllReduce(data, data, count_of(tensor), element_of(tensor.scalar_type()).type, reduction,
                        call.comm(), request);
  });
  return call.work(tensors);
}

// One allreduce for each tensor, all of them under way together.
WorkRef ProcessGroupHDT::allreduce_coalesced(Tensors& tensors,
                                             const c10d::AllreduceCoalescedOptions& options) {
  Call call(*this, OpType::ALLREDUCE_COALESCED, "hdt:all_reduce", tensors);
  require(!tensors.empty(), call.name(), ": no tensors given");
  for (at::Tensor& tensor : tensors) {
    void* const data = call.in_out(tensor);
    const Reduction reduction(options.reduceOp, tensor.scalar_type(), call.comm(), call.name());
    call.begin([&](hdtRequest_t* request) {
      return hdtAllReduce(data, data, count_of(tensor), element_of(tensor.scalar_type()).type, reduction,
                          call.comm(), request);
    });
  }
  return call.work(tensors);
}

WorkRef ProcessGroupHDT::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(*this, OpType::REDUCE, "hdt:reduce", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  require(options.rootTensor == 0, call.name(), ": root tensor ", options.rootTensor, " given; expected 0");
  const bool root = rank_ == options.rootRank;
  void* const result = root ? call.in_out(tensor) : nullptr;
  const void* const data = root ? result : call.in(tensor);
  const Reduction reduction(options.reduceOp, tensor.scalar_type(), call.comm(), call.name());
  call.begin([&](hdtRequest_t* request) {
    return hdtReduce(data, result, count_of(tensor), element_of(tensor.scalar_type()).type, reduction,
                     static_cast<int>(options.rootRank), call.comm(), request);
  });
  return call.work(tensors);
}

WorkRef ProcessGroupHDT::barrier(const c10d::BarrierOptions&) {
  const Tensors none;
  Call call(*this, OpType::BARRIER, "hdt:barrier", none);
  call.begin([&](hdtRequest_t* request) { return hdtBarrier(call.comm(), request); });
  return call.work({});
}

// --- all to all --------------------------------------------------------------------------------------------

// Ranks may have tensors of different sizes: then each knows all sizes by its outputs.
WorkRef ProcessGroupHDT::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  Call call(*this, OpType::ALLGATHER, "hdt:all_gather", inputs);
  at::Tensor& input = one(inputs, call.name());
  Tensors& results = one_for_each(outputs, call.size(), call.name());
  require_same_type(results, input, call.name());
  require_count(results[call.rank()], input.numel(), call.name(), "this rank's output");
  const void* const data = call.in(input);
  void* const gathered = call.out(results);
  const hdtDataType_t type = element_of(input.scalar_type()).type;
  const std::vector<size_t> counts = counts_of(results);
  call.begin([&](hdtRequest_t* request) {
    if (all_equal(counts)) return hdtAllGather(data, gathered, counts[0], type, call.comm(), request);
    return hdtAllGatherV(data, gathered, counts.data(), displacements_of(counts).data(), type, call.comm(),
                         request);
  });
  return call.work(results);
}

WorkRef ProcessGroupHDT::HDT_TORCH_ALL_GATHER_SINGLE(at::Tensor& output, at::Tensor& input,
                                                     const c10d::AllgatherOptions&) {
  const Tensors inputs{input};
  Call call(*this, OpType::_ALLGATHER_BASE, "hdt:_all_gather_base", inputs);
  require_same_type({output}, input, call.name());
  require_count(output, input.numel() * size_, call.name(), "the output");
  const void* const data = call.in(input);
  void* const gathered = call.out(output);
  call.begin([&](hdtRequest_t* request) {
    return hdtAllGather(data, gathered, count_of(input), element_of(input.scalar_type()).type, call.comm(),
                        request);
  });
  return call.work({output});
}

// outputs[r][k] is rank r's inputs[k].
WorkRef ProcessGroupHDT::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions&) {
  Call call(*this, OpType::ALLGATHER_COALESCED, "hdt:all_gather", inputs);
  require(!inputs.empty(), call.name(), ": no tensors given");
  require(outputs.size() == call.size(), call.name(), ": ", outputs.size(),
          " lists given; expected one for each of ", size_, " ranks");
  Tensors all;
  for (size_t k = 0; k < inputs.size(); ++k) {
    Tensors results;
    for (Tensors& of_rank : outputs) {
      require(of_rank.size() == inputs.size(), call.name(), ": a list of ", of_rank.size(),
              " tensors given; expected ", inputs.size());
      require_count(of_rank[k], inputs[k].numel(), call.name(), "an output");
      results.push_back(of_rank[k]);
    }
    require_same_type(results, inputs[k], call.name());
    const void* const data = call.in(inputs[k]);
    void* const gathered = call.out(results);
    call.begin([&](hdtRequest_t* request) {
      return hdtAllGather(data, gathered, count_of(inputs[k]), element_of(inputs[k].scalar_type()).type,
                          call.comm(), request);
    });
    all.insert(all.end(), results.begin(), results.end());
  }
  return call.work(std::move(all));
}

// Ranks may get blocks of different sizes.
WorkRef ProcessGroupHDT::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  require(inputs.size() == 1, "reduce_scatter: ", inputs.size(), " lists given; expected 1");
  Call call(*this, OpType::REDUCE_SCATTER, "hdt:reduce_scatter", inputs[0]);
  at::Tensor& output = one(outputs, call.name());
  Tensors& blocks = one_for_each(inputs, call.size(), call.name());
  require_same_type(blocks, output, call.name());
  require_count(blocks[call.rank()], output.numel(), call.name(), "this rank's input");
  const void* const data = call.in(blocks);
  void* const result = call.out(output);
  const hdtDataType_t type = element_of(output.scalar_type()).type;
  const Reduction reduction(options.reduceOp, output.scalar_type(), call.comm(), call.name());
  const std::vector<size_t> counts = counts_of(blocks);
  call.begin([&](hdtRequest_t* request) {
    if (all_equal(counts))
      return hdtReduceScatter(data, result, counts[0], type, reduction, call.comm(), request);
    return hdtReduceScatterV(data, result, counts.data(), type, reduction, call.comm(), request);
  });
  return call.work(outputs);
}

WorkRef ProcessGroupHDT::HDT_TORCH_REDUCE_SCATTER_SINGLE(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& options) {
  const Tensors inputs{input};
  Call call(*this, OpType::_REDUCE_SCATTER_BASE, "hdt:_reduce_scatter_base", inputs);
  require_same_type({output}, input, call.name());
  require_count(input, output.numel() * size_, call.name(), "the input");
  const void* const data = call.in(input);
  void* const result = call.out(output);
  const Reduction reduction(options.reduceOp, output.scalar_type(), call.comm(), call.name());
  call.begin([&](hdtRequest_t* request) {
    return hdtReduceScatter(data, result, count_of(output), element_of(output.scalar_type()).type, reduction,
                            call.comm(), request);
  });
  return call.work({output});
}

WorkRef ProcessGroupHDT::HDT_TORCH_ALL_TO_ALL_SINGLE(at::Tensor& output, at::Tensor& input,
                                                     std::vector<int64_t>& output_splits,
                                                     std::vector<int64_t>& input_splits,
                                                     const c10d::AllToAllOptions&) {
  const Tensors inputs{input};
  Call call(*this, OpType::ALLTOALL_BASE, "hdt:all_to_all", inputs);
  require_same_type({output}, input, call.name());
  const std::vector<size_t> sent = split_counts(input_splits, input, call.size(), call.name());
  const std::vector<size_t> received = split_counts(output_splits, output, call.size(), call.name());
  const bool equal = input_splits.empty() && output_splits.empty();
  require(!equal || sent[0] == received[0], call.name(), ": the output has ", output.numel(),
          " elements; expected ", input.numel());
  const void* const data = call.in(input);
  void* const result = call.out(output);
  const hdtDataType_t type = element_of(input.scalar_type()).type;
  call.begin([&](hdtRequest_t* request) {
    if (equal) return hdtAllToAll(data, result, sent[0], type, call.comm(), request);
    return hdtAllToAllV(data, sent.data(), displacements_of(sent).data(), result, received.data(),
                        displacements_of(received).data(), type, call.comm(), request);
  });
  return call.work({output});
}

// --- lists of tensors as messages: no copy, and any sizes --------------------------------------------------

namespace {

// A tensor as a message.
hdtResult_t send_to(size_t peer, const void* data, const at::Tensor& tensor, hdtComm_t comm,
                    hdtRequest_t* request) {
  return hdtSend(data, count_of(tensor), element_of(tensor.scalar_type()).type, static_cast<int>(peer), comm,
                 request);
}
hdtResult_t recv_from(size_t peer, void* data, const at::Tensor& tensor, hdtComm_t comm,
                      hdtRequest_t* request) {
  return hdtRecv(data, count_of(tensor), element_of(tensor.scalar_type()).type, static_cast<int>(peer), comm,
                 request);
}

}  // namespace

WorkRef ProcessGroupHDT::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  Call call(*this, OpType::ALLTOALL, "hdt:all_to_all", inputs);
  require(inputs.size() == call.size() && outputs.size() == call.size(), call.name(), ": ", inputs.size(),
          " inputs and ", outputs.size(), " outputs given; expected one for each of ", size_, " ranks");
  for (size_t peer = 0; peer < call.size(); ++peer) {
    void* const into = call.out(outputs[peer]);
    const void* const data = call.in(inputs[peer]);
    call.begin([&](hdtRequest_t* r) { return recv_from(peer, into, outputs[peer], call.comm(), r); });
    call.begin([&](hdtRequest_t* r) { return send_to(peer, data, inputs[peer], call.comm(), r); });
  }
  return call.work(outputs);
}

WorkRef ProcessGroupHDT::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Call call(*this, OpType::GATHER, "hdt:gather", inputs);
  at::Tensor& input = one(inputs, call.name());
  const size_t root = root_of(options.rootRank, call.size(), call.name());
  Tensors results = lists_of_root(outputs, call.rank() == root, input, call.size(), call.name());
  for (size_t peer = 0; peer < results.size(); ++peer) {
    void* const into = call.out(results[peer]);
    call.begin([&](hdtRequest_t* r) { return recv_from(peer, into, results[peer], call.comm(), r); });
  }
  const void* const data = call.in(input);
  call.begin([&](hdtRequest_t* r) { return send_to(root, data, input, call.comm(), r); });
  return call.work(std::move(results));
}

WorkRef ProcessGroupHDT::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const Tensors none;
  Call call(*this, OpType::SCATTER, "hdt:scatter", inputs.empty() ? none : inputs[0]);
  at::Tensor& output = one(outputs, call.name());
  const size_t root = root_of(options.rootRank, call.size(), call.name());
  Tensors blocks = lists_of_root(inputs, call.rank() == root, output, call.size(), call.name());
  void* const into = call.out(output);
  call.begin([&](hdtRequest_t* r) { return recv_from(root, into, output, call.comm(), r); });
  for (size_t peer = 0; peer < blocks.size(); ++peer) {
    const void* const data = call.in(blocks[peer]);
    call.begin([&](hdtRequest_t* r) { return send_to(peer, data, blocks[peer], call.comm(), r); });
  }
  return call.work(outputs);
}

WorkRef ProcessGroupHDT::send(Tensors& tensors, int to, int) {
  Call call(*this, OpType::SEND, "hdt:send", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  const void* const data = call.in(tensor);
  call.begin([&](hdtRequest_t* r) { return send_to(static_cast<size_t>(to), data, tensor, call.comm(), r); });
  return call.work({});
}

WorkRef ProcessGroupHDT::recv(Tensors& tensors, int from, int) {
  Call call(*this, OpType::RECV, "hdt:recv", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  void* const into = call.out(tensor);
  call.begin(
      [&](hdtRequest_t* r) { return recv_from(static_cast<size_t>(from), into, tensor, call.comm(), r); });
  call.source(from);
  return call.work(tensors);
}

WorkRef ProcessGroupHDT::recvAnysource(Tensors& tensors, int) {
  Call call(*this, OpType::RECVANYSOURCE, "hdt:recv", tensors);
  at::Tensor& tensor = one(tensors, call.name());
  void* const into = call.out(tensor);
  int* const source = call.source();
  call.begin([&](hdtRequest_t* request) {
    return hdtRecvAny(into, count_of(tensor), element_of(tensor.scalar_type()).type, source, call.comm(),
                      request);
  });
  return call.work(tensors);
}

#if !HDT_TORCH_HAS_BACKEND
void ProcessGroupHDT::startCoalescing() { check(hdtGroupStart(), "start of a batch"); }

void ProcessGroupHDT::endCoalescing(std::vector<WorkRef>&) { check(hdtGroupEnd(), "end of a batch"); }
#endif

// Each rank notes in the store that it has come; rank 0 waits for all, and notes the result. The next
// barrier removes what this one left in the store, as all ranks have read it then. Scripts look for some of
// the words: they are those of torch's other backends.
void ProcessGroupHDT::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Milliseconds timeout = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  const c10::intrusive_ptr<c10d::Store> store = this->options().store;
  require(store != nullptr,
          "monitoredBarrier: this group has no store: its ranks were chosen by shrink() or "
          "reconfigure()");
  const uint64_t number = monitored_barriers_++;
  const auto key = [](uint64_t barrier, int rank) { return c10::str("hdt/barrier/", barrier, "/", rank); };
  const std::string passed = "passed";
  if (rank_ != 0) {
    store->set(key(number, rank_), bytes_of(passed));
    std::string verdict = c10::str("it has not answered in ", timeout.count(), " ms");
    try {
      store->wait({key(number, 0)}, timeout + kVerdict);
      verdict = text_of(store->get(key(number, 0)));
    } catch (const std::exception& error) {
      verdict += c10::str(" (", words_of(error), ")");
    }
    require(verdict == passed, "Rank ", rank_,
            " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
            "rank 0: ",
            verdict);
    return;
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::string missing;
  size_t count = 0;
  bool late = false;
  for (int rank = 1; rank < size_ && (wait_all_ranks || count == 0); ++rank) {
    const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
    try {
      store->wait({key(number, rank)}, std::max(left, Milliseconds(1)));
    } catch (const std::exception&) {
      late |= count == 0 && left.count() <= 0;
      missing += c10::str(count++ == 0 ? "" : ", ", rank);
    }
  }
  const char* const who = late ? "Rank 0 timed out in monitoredBarrier: " : "";
  const char* const what = count == 1 ? "Rank " : "Ranks ";
  const std::string failed =
      c10::str(who, what, missing, " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  const std::string& verdict = count == 0 ? passed : failed;
  store->set(key(number, 0), bytes_of(verdict));
  for (int rank = 0; rank < size_ && number > 0 && count == 0; ++rank)
    store->deleteKey(key(number - 1, rank));
  require(count == 0, verdict);
}

}  // namespace hdt_torch
