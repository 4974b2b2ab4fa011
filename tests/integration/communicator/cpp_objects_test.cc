// cpp_objects_test.cc: what hdt.hpp has besides operations: buffers, memory, requests, groups of calls and of
// ranks, reductions, and their errors.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>
#include <thread>

#include "base/clock.h"
#include "tests/integration/communicator/cpp_ranks.h"

namespace hdt::testing {
namespace {

using std::chrono::milliseconds;

TEST(Cpp, Library) {
  EXPECT_EQ(version(), HDT_VERSION);
  expect_error(HDT_ERR_INVALID_ARGUMENT, "version is null", [] { check(hdtGetVersion(nullptr)); });
  // A code without a message in this thread has the code's own text.
  std::thread([] {
    expect_error(HDT_ERR_LINK, hdtGetErrorString(HDT_ERR_LINK), [] { check(HDT_ERR_LINK); });
  }).join();
}

TEST(Cpp, ElementTypes) {
  EXPECT_EQ(TypeOf<float>::value, HDT_FLOAT32);
  EXPECT_EQ(TypeOf<double>::value, HDT_FLOAT64);
  EXPECT_EQ(TypeOf<std::byte>::value, HDT_UINT8);
  EXPECT_EQ(TypeOf<signed char>::value, HDT_INT8);
  EXPECT_EQ(TypeOf<uint8_t>::value, HDT_UINT8);
  EXPECT_EQ(TypeOf<int16_t>::value, HDT_INT16);
  EXPECT_EQ(TypeOf<uint16_t>::value, HDT_UINT16);
  EXPECT_EQ(TypeOf<int32_t>::value, HDT_INT32);
  EXPECT_EQ(TypeOf<uint32_t>::value, HDT_UINT32);
  EXPECT_EQ(TypeOf<int64_t>::value, HDT_INT64);
  EXPECT_EQ(TypeOf<long long>::value, HDT_INT64);
  EXPECT_EQ(TypeOf<uint64_t>::value, HDT_UINT64);
  EXPECT_EQ(TypeOf<unsigned long long>::value, HDT_UINT64);
  // Every type of the library has a name, the name says its size, and no other number has one.
  int number = 0;
  for (; hdtTypeSize(static_cast<hdtDataType_t>(number)) != 0; ++number) {
    const auto type = static_cast<hdtDataType_t>(number);
    const std::string name = type_name(type);
    EXPECT_NE(name.find(std::to_string(8 * hdtTypeSize(type))), std::string::npos) << number << ": " << name;
  }
  EXPECT_STREQ(type_name(static_cast<hdtDataType_t>(number)), "unknown");
}

TEST(Cpp, Buffers) {
  std::vector<float> values(7);
  const std::span<float> part = std::span(values).subspan(2, 3);
  const RecvBuffer of_span = part;
  EXPECT_EQ(of_span.data(), values.data() + 2);
  EXPECT_EQ(of_span.count(), 3U);
  EXPECT_EQ(of_span.bytes(), 12U);
  EXPECT_EQ(of_span.type(), HDT_FLOAT32);
  const SendBuffer of_receiver = of_span;
  EXPECT_EQ(of_receiver.data(), of_span.data());
  EXPECT_EQ(of_receiver.bytes(), 12U);
  const SendBuffer of_pointer{values.data(), 5};
  EXPECT_EQ(of_pointer.count(), 5U);
  const SendBuffer named{values.data(), 6, HDT_BFLOAT16};
  EXPECT_EQ(named.type(), HDT_BFLOAT16);
  EXPECT_EQ(named.bytes(), 12U);
  EXPECT_TRUE(named.has_type());
  EXPECT_FALSE(SendBuffer().has_type());
  // Nothing can be received into what is constant, or into a vector that nobody has.
  static_assert(std::is_constructible_v<SendBuffer, const std::vector<float>&>);
  static_assert(std::is_constructible_v<SendBuffer, std::vector<float>>);
  static_assert(std::is_constructible_v<RecvBuffer, std::vector<float>&>);
  static_assert(std::is_constructible_v<RecvBuffer, std::span<float>>);
  static_assert(!std::is_constructible_v<RecvBuffer, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<RecvBuffer, std::vector<float>>);
  static_assert(!std::is_constructible_v<RecvBuffer, std::span<const float>>);
  static_assert(!std::is_constructible_v<RecvBuffer, const Memory<float>&>);
  static_assert(!std::is_constructible_v<RecvBuffer, SendBuffer>);
}

TEST(Cpp, MemoryOfTheLibrary) {
  Memory<double> memory(1'000);
  EXPECT_EQ(memory.size(), 1'000U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](double value) { return value == 0; }));
  memory[3] = 4;
  const double* first = memory.data();
  Memory<double> other(std::move(memory));
  EXPECT_EQ(other.data(), first);
  EXPECT_EQ(memory.data(), nullptr);  // NOLINT: what a moved one has is part of the interface
  memory = std::move(other);
  const Memory<double>& constant = memory;
  EXPECT_EQ(constant[3], 4);
  EXPECT_EQ(std::accumulate(constant.begin(), constant.end(), 0.0), 4);
  double* released = memory.release();
  EXPECT_EQ(released, first);
  EXPECT_EQ(memory.size(), 0U);
  check(hdtMemFree(released));
  expect_error(HDT_ERR_INVALID_ARGUMENT, "2305843009213693952 elements are too many",
               [] { Memory<double> too_large(size_t{1} << 61); });
  expect_error(HDT_ERR_INVALID_ARGUMENT, "", [] { Memory<double> too_large(size_t{1} << 60); });
  expect_error(HDT_ERR_INVALID_ARGUMENT, "", [first] { check(hdtMemFree(const_cast<double*>(first))); });
}

TEST(Cpp, PreMulSums) {
  run(kThree, [](Communicator& comm) {
    const Ints send{1, 2};
    Ints recv(2);
    PreMulSum weighted(comm, comm.rank() + 1);
    comm.all_reduce(send, recv, weighted);
    EXPECT_EQ(recv, (Ints{6, 12}));
    PreMulSum other(std::move(weighted));
    weighted = std::move(other);
    comm.all_reduce(send, recv, weighted);
    EXPECT_EQ(recv, (Ints{6, 12}));
    float value = 0;
    expect_error(HDT_ERR_INVALID_ARGUMENT, "made for int32, used with float32", [&] {
      comm.all_reduce({&value, 1}, weighted);
    });
    expect_error(HDT_ERR_INVALID_ARGUMENT, "", [&] { comm.all_reduce({&value, 1}, other); });  // NOLINT
    // A float16 of 2, for elements of 1.
    const uint16_t two = 0x4000;
    uint16_t ones = 0x3c00;
    const PreMulSum named(comm, &two, HDT_FLOAT16);
    comm.all_reduce({&ones, 1, HDT_FLOAT16}, named);
    EXPECT_EQ(ones, 0x4600);  // 6
    // A request goes on after its reduction has gone.
    Request request;
    {
      const PreMulSum shorter(comm, int32_t{2});
      request = comm.all_reduce_async(send, recv, shorter);
    }
    request.wait();
    EXPECT_EQ(recv, (Ints{6, 12}));
    // A reduction ends well after its communicator.
    std::optional<Communicator> alone = comm.split(comm.rank(), 0);
    const PreMulSum late(alone.value(), int32_t{2});
    alone.reset();
  });
}

TEST(Cpp, Requests) {
  run({0, 1}, [](Communicator& comm) {
    Request none;
    EXPECT_FALSE(none);
    EXPECT_TRUE(none.test());
    none.wait();
    EXPECT_TRUE(none.wait_for(milliseconds(0)));
    int32_t value = comm.rank() + 1, token = 0;
    if (comm.rank() == 0) {
      Request request = comm.all_reduce_async({&value, 1});
      EXPECT_TRUE(static_cast<bool>(request));
      EXPECT_FALSE(request.test());
      EXPECT_FALSE(request.wait_for(milliseconds(10)));
      comm.send({&token, 1}, 1);
      std::atomic<bool> called{false};
      const auto note = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
      request.when_done(note, &called);
      Request moved(std::move(request));
      EXPECT_FALSE(request);  // NOLINT: what a moved one names is part of the interface
      const hdt::Deadline deadline = hdt::Deadline::after_ms(30'000);
      while (!called && !deadline.expired()) std::this_thread::yield();
      EXPECT_TRUE(called);
      moved.wait();
      EXPECT_FALSE(moved);
    } else {
      comm.recv({&token, 1}, 0);
      Request taken(comm.all_reduce_async({&value, 1}).release());
      EXPECT_TRUE(taken.wait_for(milliseconds(30'000)));
    }
    EXPECT_EQ(value, 3);
    { const Request dropped = comm.all_reduce_async({&value, 1}); }
    EXPECT_EQ(value, 6) << "the destructor waits";
  });
}

TEST(Cpp, GroupsOfCalls) {
  run(kThree, [](Communicator& comm) {
    Communicator gate = comm.split(0, comm.rank()).value();
    const int32_t mine = comm.rank();
    Ints theirs(3, -1);
    CallGroup calls;
    for (int peer = 0; peer < 3; ++peer) {
      comm.send({&mine, 1}, peer);
      comm.recv({&theirs[static_cast<size_t>(peer)], 1}, peer);
    }
    calls.end();
    EXPECT_EQ(theirs, (Ints{0, 1, 2}));
    theirs.assign(3, -1);
    {
      const CallGroup ended_by_its_destructor;
      comm.send({&mine, 1}, comm.rank());
      comm.recv({theirs.data(), 1}, comm.rank());
    }
    EXPECT_EQ(theirs[0], mine);
    expect_error(HDT_ERR_INVALID_USAGE, "", [] { check(hdtGroupEnd()); });
    theirs.assign(4, -1);
    std::vector<int> from(4, -1);
    {
      const CallGroup from_any;
      for (int peer = 0; peer < 3; ++peer) comm.send({&mine, 1}, peer);
      for (size_t i = 0; i < 3; ++i) comm.recv_any({&theirs[i], 1}, &from[i]);
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(theirs[i], from[i]);
    Request any = comm.recv_any_async({&theirs[3], 1}, nullptr);
    EXPECT_FALSE(any.test());
    comm.send({&mine, 1}, mine);
    any.wait();
    EXPECT_EQ(theirs[3], mine);
    // A failure of what is in the group is thrown at its end. All ranks have ended the groups above.
    gate.barrier();
    if (comm.rank() == 2) return comm.abort();
    CallGroup failing;
    const Thrown begun = thrown_by([&] { comm.recv({theirs.data(), 1}, 2); });
    const Thrown ended = thrown_by([&] { failing.end(); });
    // If the group had failed before the call, the call says so, and the group is empty.
    EXPECT_EQ(begun.code == HDT_SUCCESS ? ended.code : begun.code, HDT_ERR_ABORTED);
  });
}

TEST(Cpp, Groups) {
  run(kThree, [](Communicator& comm) {
    Communicator gate = comm.split(0, comm.rank()).value();
    EXPECT_EQ(comm.nodes(), 2);
    EXPECT_EQ(comm.node_of(0), comm.node_of(1));
    EXPECT_NE(comm.node_of(0), comm.node_of(2));
    expect_error(HDT_ERR_INVALID_ARGUMENT, "3", [&] { (void)comm.node_of(3); });
    EXPECT_EQ(comm.async_error(), HDT_SUCCESS);
    EXPECT_EQ(comm.error_message(), "");
    const bool member = comm.rank() != 1;
    std::optional<Communicator> ends = comm.split(member ? 0 : HDT_SPLIT_NO_COLOR, -comm.rank());
    EXPECT_EQ(ends.has_value(), member);
    if (ends) {
      EXPECT_EQ(ends->size(), 2);
      EXPECT_EQ(ends->rank(), comm.rank() == 2 ? 0 : 1);
      ends->barrier();
    }
    expect_error(HDT_ERR_INVALID_ARGUMENT, "color -7", [&] { (void)comm.split(-7, 0); });
    // A handle goes to hdt.h and comes back; the object that gave it has no group.
    Communicator moved(std::move(comm));
    hdtComm_t handle = moved.release();
    EXPECT_EQ(moved.get(), nullptr);
    expect_error(HDT_ERR_INVALID_ARGUMENT, "no group", [&] {
      int32_t value = 0;
      moved.all_reduce({&value, 1});
    });
    expect_error(HDT_ERR_INVALID_ARGUMENT, "", [&] { moved.barrier(); });
    comm = Communicator::adopt(handle);
    EXPECT_EQ(comm.get(), handle);
    EXPECT_EQ(comm.size(), 3);
    comm.barrier();
    expect_error(HDT_ERR_INVALID_ARGUMENT, "", [] { (void)Communicator::adopt(nullptr); });
    // The group ends, when all ranks have left its barrier; the first two ranks go on in another.
    gate.barrier();
    int32_t value = 1;
    if (comm.rank() == 2) {
      comm.abort();
      // The daemons pass it on; no rank calls anything that could complete without it.
      const Deadline deadline = Deadline::after_ms(30'000);
      while (comm.async_error() == HDT_SUCCESS && !deadline.expired()) std::this_thread::yield();
      expect_error(HDT_ERR_ABORTED, "rank 2", [&] { comm.all_reduce({&value, 1}); });
      return;
    }
    expect_error(HDT_ERR_ABORTED, "rank 2", [&] { comm.all_reduce({&value, 1}); });
    EXPECT_EQ(comm.async_error(), HDT_ERR_ABORTED);
    EXPECT_NE(comm.error_message(), "");
    expect_error(HDT_ERR_INVALID_ARGUMENT, "", [&] { (void)comm.shrink({comm.rank()}); });
    Communicator smaller = comm.shrink({2});
    EXPECT_EQ(smaller.size(), 2);
    value = 1;
    smaller.all_reduce({&value, 1});
    EXPECT_EQ(value, 2);
  });
  // This process was started by no launcher: a group of one.
  Communicator job;
  EXPECT_EQ(job.size(), 1);
  job.barrier();
  hdtCommConfig_t wrong = HDT_COMM_CONFIG_INIT;
  wrong.timeout_ms = -1;
  expect_error(HDT_ERR_INVALID_ARGUMENT, "timeout", [&] { Communicator refused(&wrong); });
  expect_error(HDT_ERR_INVALID_ARGUMENT, "rank 2 of 2", [&] { Communicator refused(2, unique_id(), 2); });
}

}  // namespace
}  // namespace hdt::testing
