// process_group_2.cc: what a c10d::Backend (torch 2.1 and later) has beyond the ProcessGroup of torch 1.13.
// See process_group.h. Empty for older versions.
#include <torch/csrc/api/include/torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include "process_group.h"
#endif

#if HDT_TORCH_HAS_BACKEND
#include "call.h"
#include "class_map.h"

namespace hdt_torch {

using c10d::OpType;

// --- batches -----------------------------------------------------------------------------------------------

namespace {

// Several Works as one.
class WorkOfBatch : public c10d::Work {
 public:
  WorkOfBatch(int rank, std::vector<WorkRef> works)
      : Work(rank, OpType::COALESCED, "hdt:batch"), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkRef& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkRef& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const WorkRef& work : works_) {
      if (const std::exception_ptr failure = work->exception()) return failure;
    }
    return {};
  }
  Tensors result() override {
    Tensors all;
    for (const WorkRef& work : works_) {
      const Tensors results = work->result();
      all.insert(all.end(), results.begin(), results.end());
    }
    return all;
  }
  void synchronize() override {}
  void abort() override {
    if (!works_.empty()) works_[0]->abort();
  }

  // All are waited for, also behind one that failed; the first failure is thrown.
  bool wait(Milliseconds timeout = kNoTimeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    std::exception_ptr first;
    for (const WorkRef& work : works_) {
      const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
      try {
        work->wait(timeout == kNoTimeout ? kNoTimeout : std::max(left, Milliseconds(1)));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
    return true;
  }

  // Complete with the last of them. Each callback owns a share of the count and of the future.
  FutureRef getFuture() override {
    if (!make(future_, c10::ListType::create(c10::TensorType::get()))) return future_;
    const auto left = std::make_shared<std::atomic<size_t>>(works_.size());
    const auto end = [future = future_, results = result()] { future->markCompleted(c10::IValue(results)); };
    if (works_.empty()) end();
    for (const WorkRef& work : works_) {
      work->getFuture()->addCallback([left, end, future = future_](c10::ivalue::Future& of_one) {
        if (of_one.hasError()) future->setErrorIfNeeded(of_one.exception_ptr());
        if (left->fetch_sub(1, std::memory_order_acq_rel) == 1 && !future->hasError()) end();
      });
    }
    return future_;
  }

#if HDT_TORCH_HAS_WORK_RESULT
  // Complete with the last of them. Its value is that of the first one that was seen to fail.
  FutureRef getFutureResult() override {
    if (!make(future_result_, c10::IntType::get())) return future_result_;
    const auto left = std::make_shared<std::atomic<size_t>>(works_.size());
    const auto result = std::make_shared<std::atomic<int64_t>>(kSuccess);
    if (works_.empty()) future_result_->markCompleted(c10::IValue(kSuccess));
    for (const WorkRef& work : works_) {
      const auto note = [left, result, future = future_result_](c10::ivalue::Future& of_one) {
        int64_t none = kSuccess;
        result->compare_exchange_strong(none, of_one.constValue().toInt());
        if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) future->markCompleted(result->load());
      };
      work->getFutureResult()->addCallback(note);
    }
    return future_result_;
  }
#endif

 private:
  // Makes the future at `place`, unless that has been done. Its completion is added without the mutex, as
  // that may run callbacks of the user.
  bool make(FutureRef& place, c10::TypePtr type) {
    const std::lock_guard lock(futures_mutex_);
    if (place) return false;
    place = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
    return true;
  }

  const std::vector<WorkRef> works_;
  // Guards that the futures are made once; afterwards they are constant.
  std::mutex futures_mutex_;
  FutureRef future_;
#if HDT_TORCH_HAS_WORK_RESULT
  static constexpr auto kSuccess = static_cast<int64_t>(c10d::WorkResult::SUCCESS);
  FutureRef future_result_;
#endif
};

// The batches that this thread has begun and not ended, the innermost last.
struct Batch {
  const ProcessGroupHDT* group;
  std::vector<WorkRef> works;
};
std::vector<Batch>& batches() {
  thread_local std::vector<Batch> those;
  return those;
}

}  // namespace

void ProcessGroupHDT::note_in_batch(const WorkRef& work) {
  for (Batch& batch : batches()) {
    if (batch.group == this) return batch.works.push_back(work);
  }
}

void ProcessGroupHDT::startCoalescing() {
  for (const Batch& batch : batches()) require(batch.group != this, "a batch begun within a batch");
  check(hdtGroupStart(), "start of a batch");
  batches().push_back({this, {}});
}

WorkRef ProcessGroupHDT::endCoalescing() {
  const auto mine = std::find_if(batches().begin(), batches().end(),
                                 [&](const Batch& batch) { return batch.group == this; });
  require(mine != batches().end(), "the end of a batch that this thread has not begun");
  std::vector<WorkRef> works = std::move(mine->works);
  batches().erase(mine);
  check(hdtGroupEnd(), "end of a batch");
  return c10::make_intrusive<WorkOfBatch>(rank_, std::move(works));
}

// --- several tensors ---------------------------------------------------------------------------------------

namespace {

void require_pairs(const Tensors& outputs, const Tensors& inputs, const char* call) {
  require(!inputs.empty() && inputs.size() == outputs.size(), call, ": ", inputs.size(), " inputs and ",
          outputs.size(), " outputs given; expected as many of both, and one at the fewest");
}

// `whole` has a part of the size of `part` for each rank.
void require_whole(const at::Tensor& whole, const at::Tensor& part, size_t size, const char* call) {
  require(whole.scalar_type() == part.scalar_type(), call, ": tensors of ", whole.scalar_type(), " and ",
          part.scalar_type(), " given; expected one type");
  require(count_of(whole) == count_of(part) * size, call, ": tensors of ", whole.numel(), " and ",
          part.numel(), " elements given; expected ", size, " times as many in the first");
}

}  // namespace

WorkRef ProcessGroupHDT::HDT_TORCH_ALL_GATHER_COALESCED(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions&) {
  Call call(*this, OpType::COALESCED, "hdt:all_gather", inputs);
  require_pairs(outputs, inputs, call.name());
  for (size_t k = 0; k < inputs.size(); ++k) {
    require_whole(outputs[k], inputs[k], call.size(), call.name());
    const void* const data = call.in(inputs[k]);
    void* const gathered = call.out(outputs[k]);
    call.begin([&](hdtRequest_t* request) {
      return hdtAllGather(data, gathered, count_of(inputs[k]), element_of(inputs[k].scalar_type()).type,
                          call.comm(), request);
    });
  }
  return call.work(outputs);
}

WorkRef ProcessGroupHDT::HDT_TORCH_REDUCE_SCATTER_COALESCED(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) {
  Call call(*this, OpType::COALESCED, "hdt:reduce_scatter", inputs);
  require_pairs(outputs, inputs, call.name());
  for (size_t k = 0; k < inputs.size(); ++k) {
    require_whole(inputs[k], outputs[k], call.size(), call.name());
    const void* const data = call.in(inputs[k]);
    void* const result = call.out(outputs[k]);
    const at::ScalarType type = outputs[k].scalar_type();
    const Reduction reduction(options.reduceOp, type, call.comm(), call.name());
    call.begin([&](hdtRequest_t* request) {
      return hdtReduceScatter(data, result, count_of(outputs[k]), element_of(type).type, reduction,
                              call.comm(), request);
    });
  }
  return call.work(outputs);
}

#if HDT_TORCH_HAS_SINGLE
WorkRef ProcessGroupHDT::gather_single(at::Tensor& output, at::Tensor& input,
                                       const c10d::GatherOptions& options) {
  const Tensors inputs{input};
  Call call(*this, OpType::GATHER, "hdt:gather", inputs);
  const bool root = rank_ == options.rootRank;
  if (root) require_whole(output, input, call.size(), call.name());
  const void* const data = call.in(input);
  void* const gathered = root ? call.out(output) : nullptr;
  call.begin([&](hdtRequest_t* request) {
    return hdtGather(data, gathered, count_of(input), element_of(input.scalar_type()).type,
                     static_cast<int>(options.rootRank), call.comm(), request);
  });
  return call.work(root ? Tensors{output} : Tensors{});
}

// --- the group ---------------------------------------------------------------------------------------------

c10d::ErrorType ProcessGroupHDT::getError() {
  const auto group = group_or_null();
  hdtResult_t failure = HDT_SUCCESS;
  if (group) check(hdtCommGetAsyncError(group->comm(), &failure), "getError");
  switch (failure) {
    case HDT_SUCCESS:
      return c10d::ErrorType::SUCCESS;
    case HDT_ERR_TIMEOUT:
      return c10d::ErrorType::TIMEOUT;
    case HDT_ERR_RANK_LOST:
    case HDT_ERR_MISMATCH:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

namespace {

using Hook = std::shared_ptr<const c10d::AbortHook>;

void add_hook(Group& group, int64_t id, const Hook& hook) {
  group.add_abort_hook(id, [hook] {
    try {
      (*hook)();
    } catch (const std::exception& error) {
      TORCH_WARN("hdt: an abort hook failed: ", error.what());
    }
  });
}

}  // namespace

void ProcessGroupHDT::registerAbortHook(int64_t id, c10d::AbortHook hook) {
  require(hook != nullptr, "registerAbortHook: no function given");
  const Hook shared = std::make_shared<const c10d::AbortHook>(std::move(hook));
  Hook replaced = shared;
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    hooks_[id].swap(replaced);
    group = group_;
  }
  if (group) add_hook(*group, id, shared);
}

void ProcessGroupHDT::unregisterAbortHook(int64_t id) {
  Hook removed;
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = hooks_.find(id); found != hooks_.end()) {
      removed = std::move(found->second);
      hooks_.erase(found);
    }
    group = group_;
  }
  if (group) group->remove_abort_hook(id);
}
#endif

#if HDT_TORCH_HAS_RECONFIGURE
c10d::ReconfigureHandle ProcessGroupHDT::get_reconfigure_handle() const {
  Handle handle{token_, {}};
  without_python_lock([&] { check(hdtGetUniqueId(&handle.id), "making a handle"); });
  return text_of(handle);
}

namespace {

// By rank.
std::vector<Handle> handles_of(const c10d::ReconfigureOptions& options) {
  std::vector<std::string> texts;
  std::visit([&](const auto& given) { texts.assign(given.begin(), given.end()); }, options.handles);
  if (!std::holds_alternative<std::vector<c10d::ReconfigureHandle>>(options.handles))
    std::sort(texts.begin(), texts.end());
  std::vector<Handle> handles;
  std::set<std::string> tokens;
  for (const std::string& text : texts) {
    handles.push_back(handle_of(text));
    require(tokens.insert(handles.back().token).second, "reconfigure: two handles of one rank given");
  }
  return handles;
}

}  // namespace

WorkRef ProcessGroupHDT::reconfigure(const c10d::ReconfigureOptions& given) {
  for (const auto& [hint, value] : given.hints) require(false, "reconfigure: no hint is called '", hint, "'");
  const std::vector<Handle> handles = handles_of(given);
  const auto mine = std::find_if(handles.begin(), handles.end(),
                                 [&](const Handle& handle) { return handle.token == token_; });
  require(mine != handles.end(), "reconfigure: ", handles.size(),
          " handles given, and none is of this rank's group");
  GroupOptions of_new = options();
  of_new.store = {};
  of_new.global_ranks.clear();
  of_new.rank = static_cast<int>(mine - handles.begin());
  of_new.size = static_cast<int>(handles.size());
  of_new.timeout = given.timeout.value_or(timeout_.load());
  {
    const std::lock_guard lock(mutex_);
    require(uuids_.insert(given.uuid).second, "reconfigure: the uuid ", given.uuid,
            " was already used for this group");
  }
  without_python_lock([&] {
    hdtComm_t const comm = join(of_new, [&] {
      hdtUniqueId_t id;
      check(hdtDeriveUniqueId(&id, &handles[0].id, static_cast<uint64_t>(given.uuid)), "reconfigure");
      return id;
    });
    std::shared_ptr<Group> group = Group::make(comm, of_new.rank, of_new.size);
    of_new.timeout = timeout_.load();
    check(hdtCommSetTimeout(comm, of_new.timeout.count()), "reconfigure");
    decltype(hooks_) hooks;
    {
      const std::lock_guard lock(mutex_);
      hooks = hooks_;
      std::swap(group_, group);
      options_ = of_new;
      rank_ = of_new.rank;
      size_ = of_new.size;
    }
    for (const auto& [id, hook] : hooks) add_hook(*this->group(), id, hook);
    collectives_ = 0;
    monitored_barriers_ = 0;
    if (group) group->leave(std::chrono::steady_clock::now());
  });
  return c10::make_intrusive<WorkOfBatch>(rank_, std::vector<WorkRef>());
}
#endif

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupHDT::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("hdt", timeout_.load());
#if HDT_TORCH_HAS_SINGLE
  const GroupOptions mine = this->options();
  options->group_name = mine.name;
  options->group_desc = getGroupDesc();
  options->global_ranks_in_group = mine.global_ranks;
#endif
  return options;
}

void ProcessGroupHDT::setTimeout(Milliseconds timeout) {
  if (const auto group = group_or_null())
    check(hdtCommSetTimeout(group->comm(), timeout.count()), "setTimeout");
  else
    require(timeout.count() > 0, "setTimeout: a timeout of ", timeout.count(), " ms");
  timeout_ = timeout;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupHDT::shrink(const std::vector<int64_t>& excluded, int flags,
                                                          const c10::intrusive_ptr<Options>& options) {
  constexpr int kAbort = 1;  // torch's SHRINK_ABORT
  if ((flags & kAbort) != 0) group()->abort();
  return without({excluded.begin(), excluded.end()}, options ? options->timeout : timeout_.load());
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupHDT::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const std::vector<int>& ranks,
                                                         const c10::intrusive_ptr<Options>& options) {
  const GroupOptions of_this = this->options();
  GroupOptions of_new = of_this;
  of_new.store = store;
  of_new.size = static_cast<int>(ranks.size());
  of_new.global_ranks.clear();
  of_new.rank = -1;
  for (size_t k = 0; k < ranks.size(); ++k) {
    require(ranks[k] >= 0 && ranks[k] < size_, "split: rank ", ranks[k], " given; the group has ", size_,
            " ranks");
    if (ranks[k] == rank_) of_new.rank = static_cast<int>(k);
    of_new.global_ranks.push_back(of_this.global_rank(ranks[k]));
  }
  if (of_new.rank < 0) return {};
  if (options) {
    of_new.timeout = options->timeout;
#if HDT_TORCH_HAS_SINGLE
    of_new.name = options->group_name;
    if (const std::string mapped = class_of(options->group_desc); !mapped.empty())
      of_new.group_class = mapped;
#endif
  }
  return c10::make_intrusive<ProcessGroupHDT>(of_new);
}

}  // namespace hdt_torch
#endif
