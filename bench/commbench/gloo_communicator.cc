// gloo_communicator.cc: makes calls of Gloo out of calls of the benchmark.
//
// Gloo reports errors by exceptions, which guarded() turns into kLink. Every operation gets a tag of its
// own, so that the messages of one cannot be taken for those of the next.
#include "bench/commbench/gloo_communicator.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <climits>
#include <exception>
#include <tuple>

#include "bench/commbench/gloo_reduce_scatter.h"
#include "bench/commbench/gloo_store.h"

namespace hdt::bench {
namespace {

// Combines elements, in the form in which Gloo takes reductions.
using Function = void (*)(void*, const void*, const void*, size_t);

// Null for a reduction that Gloo does not have.
template <typename T>
Function function_of(hdtRedOp_t op) {
  switch (op) {
    case HDT_SUM:
      return static_cast<Function>(&gloo::sum<T>);
    case HDT_PROD:
      return static_cast<Function>(&gloo::product<T>);
    case HDT_MIN:
      return static_cast<Function>(&gloo::min<T>);
    case HDT_MAX:
      return static_cast<Function>(&gloo::max<T>);
    default:
      return nullptr;
  }
}

// Gloo's context and what it needs between calls. Its ranks are those of the group.
class GlooCommunicator : public PeerCommunicator {
 public:
  GlooCommunicator(Communicator& group, std::shared_ptr<gloo::rendezvous::Context> context)
      : PeerCommunicator(group), context_(std::move(context)) {}

  std::string lacks(const Call& call) const override {
    if (!moves_data(call.what)) return "";
    if (call.count == 0) return "no empty messages";
    if (call.what == Collective::kSendRecv && ranks() == 1) return "no messages to oneself";
    if (!reduces(call.what)) return "";
    if (function_of<int32_t>(call.op) == nullptr) return std::string("no ") + name_of(call.op);
    // The types that Gloo's reduction functions exist for.
    const bool known = call.type == HDT_INT32 || call.type == HDT_INT64 || call.type == HDT_FLOAT16 ||
                       call.type == HDT_FLOAT32 || call.type == HDT_FLOAT64;
    if (!known) return std::string("no reductions of ") + name_of(call.type);
    // Gloo 0.5.0 there overwrites what it has not yet sent: the verifier finds wrong parts.
    if (call.what == Collective::kReduceScatter && (ranks() & (ranks() - 1)) != 0) {
      return "reduce_scatter is wrong for numbers of ranks that are no power of two";
    }
    // Its counts are ints.
    if (call.what == Collective::kReduceScatter && call.count * static_cast<size_t>(ranks()) > INT_MAX) {
      return "no reduce_scatter of more than 2^31 - 1 elements";
    }
    return "";
  }
  // See gloo_reduce_scatter.h.
  bool scatters_to_start() const override { return true; }

  Status barrier() override {
    return guarded([this] {
      gloo::BarrierOptions options(context_);
      options.setTag(next_tag());
      gloo::barrier(options);
    });
  }

  Status run(const Call& call) override {
    if (call.what == Collective::kBarrier) return barrier();
    if (!reduces(call.what)) return guarded([&] { move(call); });
    // Sums and products of integers wrap, as in HDT.
    const bool wraps = call.op == HDT_SUM || call.op == HDT_PROD;
    return guarded([&] {
      switch (call.type) {
        // Gloo adds and multiplies without care for overflow; unsigned, the same bits come out as defined.
        case HDT_INT32:
          return wraps ? reduce<uint32_t>(call) : reduce<int32_t>(call);
        case HDT_INT64:
          return wraps ? reduce<uint64_t>(call) : reduce<int64_t>(call);
        case HDT_FLOAT16:
          return reduce<gloo::float16>(call);
        case HDT_FLOAT64:
          return reduce<double>(call);
        default:
          return reduce<float>(call);
      }
    });
  }

 private:
  // Runs `body`, and turns an exception into a Status.
  template <typename Body>
  Status guarded(Body body) {
    try {
      body();
      return Status::ok();
    } catch (const std::exception& error) {
      return {Code::kLink, std::string("gloo: ") + error.what()};
    }
  }

  uint32_t next_tag() { return tag_++; }

  // The calls that reduce.
  template <typename T>
  void reduce(const Call& call) {
    auto* send = static_cast<T*>(const_cast<void*>(call.send));
    auto* recv = static_cast<T*>(call.recv);
    if (call.what == Collective::kReduceScatter) {
      reduce_scatter_.run<T>(context_, call, in_place(call));
    } else if (call.what == Collective::kAllReduce) {
      gloo::AllreduceOptions options(context_);
      // Without an input, Gloo reduces the output in place.
      if (!in_place(call)) options.setInput(send, call.count);
      options.setOutput(recv, call.count);
      options.setReduceFunction(function_of<T>(call.op));
      options.setTag(next_tag());
      gloo::allreduce(options);
    } else {
      // On ranks other than the root, Gloo uses the output as scratch memory. That must not be the
      // user's buffer.
      if (rank() != call.root) {
        scratch_.resize(call.count * sizeof(T));
        recv = reinterpret_cast<T*>(scratch_.data());
      }
      gloo::ReduceOptions options(context_);
      if (send != recv) options.setInput(send, call.count);
      options.setOutput(recv, call.count);
      options.setRoot(call.root);
      options.setReduceFunction(function_of<T>(call.op));
      options.setTag(next_tag());
      gloo::reduce(options);
    }
  }

  // The calls that only move data. They move bytes, whatever the type is.
  void move(const Call& call) {
    const size_t bytes = call.count * element_bytes(call.type);
    auto* send = static_cast<uint8_t*>(const_cast<void*>(call.send));
    auto* recv = static_cast<uint8_t*>(call.recv);
    if (call.what == Collective::kAllGather) {
      // In place, the own part is in the output already, and Gloo wants the output alone.
      const bool same = in_place(call);
      gloo::AllgatherOptions options(context_);
      if (!same) options.setInput(send, bytes);
      options.setOutput(same ? send - static_cast<size_t>(rank()) * bytes : recv,
                        bytes * static_cast<size_t>(ranks()));
      options.setTag(next_tag());
      gloo::allgather(options);
    } else if (call.what == Collective::kBroadcast) {
      gloo::BroadcastOptions options(context_);
      if (rank() == call.root && send != recv) options.setInput(send, bytes);
      options.setOutput(recv, bytes);
      options.setRoot(call.root);
      options.setTag(next_tag());
      gloo::broadcast(options);
    } else if (call.what == Collective::kAllToAll) {
      const size_t whole = bytes * static_cast<size_t>(ranks());
      gloo::AlltoallOptions options(context_);
      options.setInput(send, whole);
      options.setOutput(recv, whole);
      options.setTag(next_tag());
      gloo::alltoall(options);
    } else if (call.what == Collective::kGather) {
      gloo::GatherOptions options(context_);
      options.setInput(send, bytes);
      if (rank() == call.root) options.setOutput(recv, bytes * static_cast<size_t>(ranks()));
      options.setRoot(call.root);
      options.setTag(next_tag());
      gloo::gather(options);
    } else if (call.what == Collective::kScatter) {
      gloo::ScatterOptions options(context_);
      // Gloo takes a scatter's input part by part.
      std::vector<uint8_t*> parts;
      for (size_t part = 0; rank() == call.root && part < static_cast<size_t>(ranks()); ++part) {
        parts.push_back(send + part * bytes);
      }
      options.setInputs(parts, bytes);
      options.setOutput(recv, bytes);
      options.setRoot(call.root);
      options.setTag(next_tag());
      gloo::scatter(options);
    } else {
      // Send and receive: both are begun before either is waited for, so a ring of ranks cannot
      // deadlock.
      const auto out = context_->createUnboundBuffer(send, bytes);
      const auto in = context_->createUnboundBuffer(recv, bytes);
      constexpr uint64_t kSlot = uint64_t{1} << 60;  // Gloo's collectives leave these bits unused
      in->recv((rank() + ranks() - 1) % ranks(), kSlot);
      out->send((rank() + 1) % ranks(), kSlot);
      in->waitRecv();
      out->waitSend();
    }
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  GlooReduceScatter reduce_scatter_;
  std::vector<std::byte> scratch_;
  uint32_t tag_ = 0;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_gloo_communicator(Communicator& group, int64_t timeout_s) {
  // Gloo listens on this address, and publishes it in the store.
  const Result<std::string> address = reachable_address(on_one_node(group));
  if (!address.is_ok()) return address.status();
  try {
    gloo::transport::tcp::attr attributes(address.value().c_str());
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(group.rank(), group.ranks());
    context->setTimeout(std::chrono::seconds(timeout_s));
    // Needed for connecting only.
    GlooStore store(group);
    context->connectFullMesh(store, device);
    return std::unique_ptr<Communicator>(new GlooCommunicator(group, std::move(context)));
  } catch (const std::exception& error) {
    return Status(Code::kLink, std::string("connecting Gloo: ") + error.what());
  }
}

std::string gloo_version() {
  return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
         std::to_string(GLOO_VERSION_PATCH) + ", tcp";
}

}  // namespace hdt::bench
