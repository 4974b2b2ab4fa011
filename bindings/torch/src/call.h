// call.h: what every function of ProcessGroupHDT is made of: a call's tensors as libhdt's buffers and types,
// its requests, and the Work that torch gets for it. Included by the two process_group files alone, as
// torch's headers take long to compile.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "process_group.h"
#if HDT_TORCH_HAS_WORK_REGISTRY
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace hdt_torch {

// --- types -------------------------------------------------------------------------------------------------

// How libhdt sees the elements of a torch type: `per` of `type` make one.
struct Element {
  hdtDataType_t type;
  size_t per;
  // It has arithmetic in libhdt; the others can only be moved.
  bool arithmetic;
};

inline Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kByte:
      return {HDT_UINT8, 1, true};
    case at::kChar:
      return {HDT_INT8, 1, true};
    case at::kShort:
      return {HDT_INT16, 1, true};
    case at::kInt:
      return {HDT_INT32, 1, true};
    case at::kLong:
      return {HDT_INT64, 1, true};
    case at::kHalf:
      return {HDT_FLOAT16, 1, true};
    case at::kBFloat16:
      return {HDT_BFLOAT16, 1, true};
    case at::kFloat:
      return {HDT_FLOAT32, 1, true};
    case at::kDouble:
      return {HDT_FLOAT64, 1, true};
    case at::kComplexHalf:
      return {HDT_FLOAT16, 2, true};
    case at::kComplexFloat:
      return {HDT_FLOAT32, 2, true};
    case at::kComplexDouble:
      return {HDT_FLOAT64, 2, true};
#if HDT_TORCH_AT_LEAST(2, 1)
    case at::kFloat8_e4m3fn:
      return {HDT_FLOAT8E4M3, 1, true};
    case at::kFloat8_e5m2:
      return {HDT_FLOAT8E5M2, 1, true};
#endif
    default:
      return {HDT_UINT8, c10::elementSize(type), false};
  }
}

inline size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * element_of(tensor.scalar_type()).per;
}

// A reduction of torch for elements of one type, as one of libhdt. One that libhdt makes for the call ends
// with this object, which may be as soon as the call has been begun.
class Reduction {
 public:
  Reduction(const c10d::ReduceOp& op, at::ScalarType type, hdtComm_t comm, const char* call) : comm_(comm) {
    const Element element = element_of(type);
    require(element.arithmetic, call, ": HDT does not compute with ", type, "; it can be sent and gathered");
    const bool boolean = type == at::kBool;
    const bool integer = c10::isIntegralType(type, /*includeBool=*/true);
    const auto unless = [&](bool refused, const char* word) {
      require(!refused, call, ": HDT has no ", word, " of ", type);
    };
    switch (op.op_) {
      case c10d::ReduceOp::SUM:  // of truth values: whether any is true, as torch's own sum of them says
        op_ = boolean ? HDT_MAX : HDT_SUM;
        break;
      case c10d::ReduceOp::AVG:
        unless(boolean, "average");
        op_ = HDT_AVG;
        break;
      case c10d::ReduceOp::PRODUCT:
        unless(element.per > 1, "product");
        op_ = boolean ? HDT_MIN : HDT_PROD;
        break;
      case c10d::ReduceOp::MIN:
        unless(element.per > 1, "minimum");
        op_ = HDT_MIN;
        break;
      case c10d::ReduceOp::MAX:
        unless(element.per > 1, "maximum");
        op_ = HDT_MAX;
        break;
      case c10d::ReduceOp::BAND:
        unless(!integer, "bitwise AND");
        op_ = boolean ? HDT_MIN : HDT_BAND;
        break;
      case c10d::ReduceOp::BOR:
        unless(!integer, "bitwise OR");
        op_ = boolean ? HDT_MAX : HDT_BOR;
        break;
      case c10d::ReduceOp::BXOR:
        unless(!integer, "bitwise XOR");
        op_ = HDT_BXOR;
        break;
      case c10d::ReduceOp::PREMUL_SUM:
        unless(boolean, "multiplied sum");
        create(op, type, element.type, call);
        break;
      default:
        unless(true, "reduction of that number");
    }
  }
  ~Reduction() {
    if (created_) (void)hdtRedOpDestroy(op_, comm_);
  }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;
  operator hdtRedOp_t() const { return op_; }

 private:
  // The factor that is a tensor: in torch 1.13 one of a list, later the only one. Undefined for a number.
  template <typename Factors>
  static at::Tensor factor_of(const Factors& factors, [[maybe_unused]] const char* call) {
    if constexpr (requires { factors.tensor_factors; }) {
      require(factors.tensor_factors.size() <= 1, call, ": PREMUL_SUM with several factors");
      return factors.tensor_factors.empty() ? at::Tensor() : factors.tensor_factors[0];
    } else {
      return factors.tensor_factor;
    }
  }
  // libhdt reads the factor from memory, as an element of the type.
  void create(const c10d::ReduceOp& op, at::ScalarType type, hdtDataType_t element, const char* call) {
    const auto* const factors = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    require(factors != nullptr, call, ": PREMUL_SUM without its factor");
    const at::Tensor given = factor_of(*factors, call);
    const auto real = c10::isComplexType(type) ? c10::toRealValueType(type) : type;
    at::Tensor factor = given.defined()
                            ? given.to(at::kCPU, real)
                            : at::scalar_tensor(factors->double_factor, at::TensorOptions().dtype(real));
    require(factor.numel() == 1, call, ": PREMUL_SUM's factor has ", factor.numel(), " elements; expected 1");
    check(hdtRedOpCreatePreMulSum(&op_, factor.data_ptr(), element, comm_), call);
    created_ = true;
  }

  const hdtComm_t comm_;
  hdtRedOp_t op_ = HDT_SUM;
  bool created_ = false;
};

// --- Work --------------------------------------------------------------------------------------------------

using FutureRef = c10::intrusive_ptr<c10::ivalue::Future>;

// The user's handle of an operation. If it is dropped before the operation is complete, the completion
// thread has it.
class WorkHDT : public c10d::Work {
 public:
  WorkHDT(std::shared_ptr<Group> group, std::shared_ptr<Operation> operation, c10d::OpType type,
          const char* title, const Tensors& inputs, Tensors results, std::shared_ptr<const int> source,
          uint64_t number)
      : Work(group->rank(), type, title, inputs),
        group_(std::move(group)),
        operation_(std::move(operation)),
        results_(std::move(results)),
        source_(std::move(source)),
        number_(number) {
    if (recordFunctionEndCallback_) operation_->when_done(std::move(recordFunctionEndCallback_));
  }
  ~WorkHDT() override {
    if (!operation_->test()) group_->completion().adopt(operation_);
  }

  bool isCompleted() override { return operation_->test(); }
  bool isSuccess() const override { return operation_->done() && !operation_->failure(); }
  std::exception_ptr exception() const override { return operation_->failure(); }
  int sourceRank() const override {
    require(source_ != nullptr, operation_->name(), ": only receives have a source");
    require(isSuccess(), operation_->name(), ": it has a source once it is complete");
    return *source_;
  }
  Tensors result() override { return results_; }
  void synchronize() override {}
  void abort() override { group_->abort(); }
  // Not all Works have it (1.13 does not): it overrides what is there.
  uint64_t getSequencenumber() const { return number_; }

  // A timeout that is over leaves the operation as it is: it can be waited for again.
  bool wait(Milliseconds timeout = kNoTimeout) override {
    const auto limit = timeout == kNoTimeout ? std::nullopt : std::optional(timeout);
    require(operation_->wait(limit), operation_->name(), ": timeout: not complete after ", timeout.count(),
            " ms; the operation goes on");
#if HDT_TORCH_HAS_WORK_REGISTRY
    c10d::unregister_work(WorkRef::unsafe_reclaim_from_nonowning(this));
#endif
    if (operation_->failure()) std::rethrow_exception(operation_->failure());
    return true;
  }

  FutureRef getFuture() override {
    const auto set = [results = results_](c10::ivalue::Future& future, const Operation& operation) {
      if (operation.failure()) {
        future.setError(operation.failure());
      } else {
        future.markCompleted(c10::IValue(results));
      }
    };
    return set_at_end(future_, c10::ListType::create(c10::TensorType::get()), set);
  }

#if HDT_TORCH_HAS_WORK_RESULT
  // A future that has no error: its value is a c10d::WorkResult.
  FutureRef getFutureResult() override {
    const auto set = [](c10::ivalue::Future& future, const Operation& operation) {
      future.markCompleted(c10::IValue(static_cast<int64_t>(result_of(operation))));
    };
    return set_at_end(future_result_, c10::IntType::get(), set);
  }
#endif

 private:
#if HDT_TORCH_HAS_WORK_RESULT
  // How an operation that is done went.
  static c10d::WorkResult result_of(const Operation& operation) {
    if (!operation.failure()) return c10d::WorkResult::SUCCESS;
    switch (operation.failure_code()) {
      case HDT_SUCCESS:
        return c10d::WorkResult::UNKNOWN;
      case HDT_ERR_TIMEOUT:
        return c10d::WorkResult::TIMEOUT;
      default:
        return c10d::WorkResult::COMM_ERROR;
    }
  }
#endif
  // The future at `place`; the first call makes it, of the type `type`, and `set` gives it its value once the
  // operation is done. The operation runs its callbacks, so it may be named in them without being owned. A
  // test may run callbacks of the user, so it comes behind the mutex.
  template <typename Set>
  FutureRef set_at_end(FutureRef& place, c10::TypePtr type, const Set& set) {
    {
      const std::lock_guard lock(futures_mutex_);
      if (place) return place;
      place = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
      operation_->when_done(
          [future = place, operation = operation_.get(), set] { set(*future, *operation); });
    }
    if (!operation_->test()) group_->completion().adopt(operation_);
    return place;
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Operation> operation_;
  const Tensors results_;
  // A receive writes it before the operation is complete.
  const std::shared_ptr<const int> source_;
  // The number of the collective in its group, from 1; for a message the number of collectives before it.
  const uint64_t number_;
  // Guards that the futures are made once; afterwards they are constant.
  std::mutex futures_mutex_;
  FutureRef future_;
#if HDT_TORCH_HAS_WORK_RESULT
  FutureRef future_result_;
#endif
};

// --- Call --------------------------------------------------------------------------------------------------

// One call of torch's, while it is made: its buffers, which its operation keeps, then its calls of libhdt,
// then its Work. Autograd sees nothing of it. If a call of libhdt is refused, those before it are the
// completion thread's.
class ProcessGroupHDT::Call {
 public:
  // `title` is the name that profilers show, "hdt:" and the call's.
  Call(ProcessGroupHDT& owner, c10d::OpType type, const char* title, const Tensors& inputs)
      : owner_(owner),
        group_(owner.group()),
        type_(type),
        title_(title),
        inputs_(inputs),
        name_(title + sizeof("hdt:") - 1),
        number_(c10d::isP2POp(type) ? owner.collectives_.load() : ++owner.collectives_) {}
  ~Call() {
    if (!operation_ || finished_) return;
    keep_buffers();
    group_->completion().adopt(operation_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const char* name() const { return name_; }
  hdtComm_t comm() const { return group_->comm(); }
  size_t size() const { return static_cast<size_t>(group_->size()); }
  size_t rank() const { return static_cast<size_t>(group_->rank()); }

  // The tensor's elements, as libhdt is to read them.
  const void* in(const at::Tensor& tensor) { return kept(plain(usable(tensor))); }
  // Where libhdt is to write the tensor's elements.
  void* out(const at::Tensor& tensor) {
    if (is_plain(usable(tensor))) return kept(tensor);
    return copied_back(tensor, at::empty(tensor.sizes(), tensor.options()));
  }
  void* in_out(const at::Tensor& tensor) {
    if (is_plain(usable(tensor))) return kept(tensor);
    return copied_back(tensor, plain(tensor));
  }
  // The elements of several tensors, one after the other.
  const void* in(const Tensors& tensors) {
    if (adjacent(tensors)) return tensors[0].data_ptr();
    const at::Tensor flat = flat_like(tensors);
    for (const auto& [tensor, part] : parts(tensors, flat)) part.copy_(usable(tensor));
    return kept(flat);
  }
  void* out(const Tensors& tensors) {
    if (adjacent(tensors)) return tensors[0].data_ptr();
    const at::Tensor flat = flat_like(tensors);
    for (auto& [tensor, part] : parts(tensors, flat)) copies_.emplace_back(usable(tensor), part);
    return kept(flat);
  }

  void begin(const std::function<hdtResult_t(hdtRequest_t*)>& call) {
    if (!operation_) operation_ = group_->operation(name_);
    operation_->begin(call);
  }
  // The rank that a receive gets its message from, to be written by libhdt if it is not known yet.
  int* source(int rank = -1) {
    source_ = std::make_shared<int>(rank);
    return source_.get();
  }
  WorkRef work(Tensors results) {
    keep_buffers();
    auto made = c10::make_intrusive<WorkHDT>(group_, operation_, type_, title_, inputs_, std::move(results),
                                             source_, number_);
    finished_ = true;
    group_->watch_for_hooks(operation_);
    owner_.note_in_batch(made);
    return made;
  }

 private:
  using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;

  const at::Tensor& usable(const at::Tensor& tensor) const {
    require(tensor.layout() == at::kStrided, name_, ": HDT moves dense tensors only; a sparse one was given");
    require(tensor.device().is_cpu(), name_, ": HDT moves host memory only; a tensor on ", tensor.device(),
            " was given");
    return tensor;
  }
  // The tensor's memory is its elements, one after the other; views may say otherwise in three ways.
  static bool is_plain(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  }
  static at::Tensor plain(const at::Tensor& tensor) {
    return tensor.resolve_conj().resolve_neg().contiguous();
  }
  void* kept(const at::Tensor& tensor) {
    kept_.push_back(tensor);
    return tensor.data_ptr();
  }
  void* copied_back(const at::Tensor& tensor, const at::Tensor& copy) {
    copies_.emplace_back(tensor, copy);
    return copy.data_ptr();
  }
  // The tensors' memory is one range already, as that of chunk() is; then they are kept.
  bool adjacent(const Tensors& tensors) {
    const auto* next = static_cast<const char*>(tensors[0].data_ptr());
    for (const at::Tensor& tensor : tensors) {
      if (!is_plain(usable(tensor)) || tensor.data_ptr() != next) return false;
      next += tensor.nbytes();
    }
    kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    return true;
  }
  static at::Tensor flat_like(const Tensors& tensors) {
    int64_t elements = 0;
    for (const at::Tensor& tensor : tensors) elements += tensor.numel();
    return at::empty({elements}, tensors[0].options());
  }
  static Pairs parts(const Tensors& tensors, const at::Tensor& flat) {
    Pairs found;
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      found.emplace_back(tensor, flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
    return found;
  }
  void keep_buffers() {
    operation_->end_with([kept = std::move(kept_), copies = std::move(copies_), source = source_]() mutable {
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      for (auto& [tensor, copy] : copies) tensor.copy_(copy);
    });
  }

  ProcessGroupHDT& owner_;
  const std::shared_ptr<Group> group_;
  const c10d::OpType type_;
  const char* const title_;
  const Tensors& inputs_;
  const char* const name_;
  const uint64_t number_;
  // The tensors that hold libhdt's buffers; and pairs of which the second is copied to the first at the end.
  Tensors kept_;
  Pairs copies_;
  // Null but for receives.
  std::shared_ptr<int> source_;
  std::shared_ptr<Operation> operation_;
  bool finished_ = false;
  const at::AutoDispatchBelowADInplaceOrView no_autograd_;
};

}  // namespace hdt_torch
