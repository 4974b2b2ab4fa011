// cpp_test.cc: the operations of hdt.hpp, each once: what it calls, and the lengths and types that it checks.
// That the calls do what they should for all sizes, types and placements is for the tests of hdt.h.
#include <array>

#include "tests/integration/communicator/cpp_ranks.h"

namespace hdt::testing {
namespace {

TEST(Cpp, Reductions) {
  run(kThree, [](Communicator& comm) {
    const int32_t mine = comm.rank() + 1;
    const Ints send{mine, 10 * mine, 100 * mine};
    Ints recv(3), data = send, part(1);
    comm.all_reduce(send, recv);
    EXPECT_EQ(recv, (Ints{6, 60, 600}));
    comm.all_reduce_async(send, recv, HDT_MAX).wait();
    EXPECT_EQ(recv, (Ints{3, 30, 300}));
    comm.all_reduce(data, HDT_PROD);
    EXPECT_EQ(data, (Ints{6, 6'000, 6'000'000}));
    data = send;
    comm.all_reduce_async(data).wait();
    EXPECT_EQ(data, (Ints{6, 60, 600}));
    const bool root = comm.rank() == 1;
    recv.assign(3, 0);
    comm.reduce(send, root ? RecvBuffer(recv) : RecvBuffer(), 1, HDT_MIN);
    EXPECT_EQ(recv, root ? (Ints{1, 10, 100}) : Ints(3));
    comm.reduce_async(send, root ? RecvBuffer(recv) : RecvBuffer(), 1).wait();
    EXPECT_EQ(recv, root ? (Ints{6, 60, 600}) : Ints(3));
    const Ints sums{6, 60, 600};
    comm.reduce_scatter(send, part);
    EXPECT_EQ(part[0], sums[static_cast<size_t>(comm.rank())]);
    comm.reduce_scatter_async(send, part, HDT_MIN).wait();
    EXPECT_EQ(part[0], sums[static_cast<size_t>(comm.rank())] / 6);
    // Ranks 0 and 2 get one and two elements, rank 1 none.
    const Sizes counts{1, 0, 2};
    Ints some(counts[static_cast<size_t>(comm.rank())]);
    const Ints wanted = comm.rank() == 0 ? Ints{6} : comm.rank() == 1 ? Ints{} : Ints{60, 600};
    comm.reduce_scatter_v(send, some, counts);
    EXPECT_EQ(some, wanted);
    some.assign(some.size(), 0);
    comm.reduce_scatter_v_async(send, some, counts).wait();
    EXPECT_EQ(some, wanted);
    const Sizes suggested = comm.suggest_counts(9, HDT_INT32);
    EXPECT_EQ(suggested.size(), 3U);
    EXPECT_EQ(suggested[0] + suggested[1] + suggested[2], 9U);
  });
}

TEST(Cpp, MovesOfData) {
  run(kThree, [](Communicator& comm) {
    const bool root = comm.rank() == 2;
    const int32_t mine = comm.rank() + 1;
    const Ints one{mine}, all{1, 2, 3}, none(3);
    Ints recv(3), single(1);
    comm.all_gather(one, recv);
    EXPECT_EQ(recv, all);
    recv = none;
    comm.all_gather_async(one, recv).wait();
    EXPECT_EQ(recv, all);
    recv = none;
    comm.broadcast(root ? SendBuffer(all) : SendBuffer(), recv, 2);
    EXPECT_EQ(recv, all);
    recv = none;
    comm.broadcast_async(root ? SendBuffer(all) : SendBuffer(), recv, 2).wait();
    EXPECT_EQ(recv, all);
    Ints in_place = root ? all : none;
    comm.broadcast(in_place, 2);
    EXPECT_EQ(in_place, all);
    in_place = root ? all : none;
    comm.broadcast_async(in_place, 2).wait();
    EXPECT_EQ(in_place, all);
    recv = none;
    comm.gather(one, root ? RecvBuffer(recv) : RecvBuffer(), 2);
    EXPECT_EQ(recv, root ? all : none);
    recv = none;
    comm.gather_async(one, root ? RecvBuffer(recv) : RecvBuffer(), 2).wait();
    EXPECT_EQ(recv, root ? all : none);
    comm.scatter(root ? SendBuffer(all) : SendBuffer(), single, 2);
    EXPECT_EQ(single, one);
    single[0] = 0;
    comm.scatter_async(root ? SendBuffer(all) : SendBuffer(), single, 2).wait();
    EXPECT_EQ(single, one);
    const Ints to_each{10 * mine, 10 * mine + 1, 10 * mine + 2};
    const Ints from_each{10 + comm.rank(), 20 + comm.rank(), 30 + comm.rank()};
    comm.all_to_all(to_each, recv);
    EXPECT_EQ(recv, from_each);
    recv = none;
    comm.all_to_all_async(to_each, recv).wait();
    EXPECT_EQ(recv, from_each);
  });
}

TEST(Cpp, CountsForEveryRank) {
  run(kThree, [](Communicator& comm) {
    // Rank r sends r elements to every rank, all the same ones.
    const auto mine = static_cast<size_t>(comm.rank());
    const Ints send(mine, 7 * comm.rank());
    const Sizes sendcounts(3, mine), senddispls(3, 0), recvcounts{0, 1, 2};
    const std::array<size_t, 3> recvdispls{0, 1, 3};
    const Ints wanted{-1, 7, -1, 14, 14};
    Ints recv(5, -1);
    comm.all_to_all_v(send, sendcounts, senddispls, recv, recvcounts, recvdispls);
    EXPECT_EQ(recv, wanted);
    recv.assign(5, -1);
    comm.all_to_all_v_async(send, sendcounts, senddispls, recv, recvcounts, recvdispls).wait();
    EXPECT_EQ(recv, wanted);
    recv.assign(5, -1);
    comm.all_gather_v(send, recv, recvcounts, recvdispls);
    EXPECT_EQ(recv, wanted);
    recv.assign(5, -1);
    comm.all_gather_v_async(send, recv, recvcounts, recvdispls).wait();
    EXPECT_EQ(recv, wanted);
  });
}

TEST(Cpp, PointToPoint) {
  run(kThree, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
    const int32_t mine = comm.rank();
    int32_t theirs = -1;
    comm.send_recv({&mine, 1}, next, {&theirs, 1}, before);
    EXPECT_EQ(theirs, before);
    theirs = -1;
    comm.send_recv_async({&mine, 1}, next, {&theirs, 1}, before).wait();
    EXPECT_EQ(theirs, before);
    theirs = -1;
    Request receives = comm.recv_async({&theirs, 1}, before);
    Request sends = comm.send_async({&mine, 1}, next);
    sends.wait();
    receives.wait();
    EXPECT_EQ(theirs, before);
    // One after the other, from rank to rank.
    theirs = 40;
    if (mine > 0) comm.recv({&theirs, 1}, before);
    EXPECT_EQ(theirs, 40 + mine);
    ++theirs;
    if (mine < 2) comm.send({&theirs, 1}, next);
    comm.barrier();
    comm.barrier_async().wait();
  });
}

// 1 + 1 = 2 in every 16-bit and 8-bit type, as bits.
TEST(Cpp, FloatsThatCppHasNoTypeFor) {
  run({0, 0}, [](Communicator& comm) {
    std::array<uint16_t, 1> half{0x3c00}, brain{0x3f80};
    comm.all_reduce({half.data(), 1, HDT_FLOAT16});
    EXPECT_EQ(half[0], 0x4000);
    comm.all_reduce({brain.data(), 1, HDT_BFLOAT16});
    EXPECT_EQ(brain[0], 0x4000);
    std::array<uint8_t, 1> e4m3{0x38}, e5m2{0x3c};
    comm.all_reduce({e4m3.data(), 1, HDT_FLOAT8E4M3});
    EXPECT_EQ(e4m3[0], 0x40);
    comm.all_reduce({e5m2.data(), 1, HDT_FLOAT8E5M2});
    EXPECT_EQ(e5m2[0], 0x40);
  });
}

// Every rank of two is refused alone, so the group goes on.
TEST(Cpp, LengthsAndTypesThatDoNotFit) {
  run({0, 0}, [](Communicator& comm) {
    const int own = comm.rank();
    Ints two(2), three(3), four(4);
    std::vector<float> floats(2);
    const Sizes ones{1, 1}, zero_one{0, 1}, one{1}, huge{1, SIZE_MAX};
    const auto refused = [](const std::string& part, auto call) {
      expect_error(HDT_ERR_INVALID_ARGUMENT, part, call);
    };
    refused("all_reduce: recv has 3 elements, and 2 are needed", [&] { comm.all_reduce(two, three); });
    refused("all_reduce: send holds int32, recv float32", [&] { comm.all_reduce(two, floats); });
    refused("all_reduce: neither buffer has an element type", [&] { comm.all_reduce({}, RecvBuffer()); });
    refused("all_reduce: recv has 0", [&] { (void)comm.all_reduce_async(two, RecvBuffer()); });
    refused("reduce: recv has 3 elements, and 2 are needed", [&] { comm.reduce(two, three, own); });
    refused("reduce_scatter: send has 3 elements, and 4", [&] { comm.reduce_scatter(three, two); });
    refused("all_gather: recv has 3 elements, and 4", [&] { comm.all_gather(two, three); });
    refused("broadcast: send has 2 elements, and 3", [&] { comm.broadcast(two, three, own); });
    refused("gather: recv has 3 elements, and 4", [&] { comm.gather(two, three, own); });
    refused("scatter: send has 3 elements, and 4", [&] { comm.scatter(three, two, own); });
    refused("all_to_all: send has 3 elements, and 2", [&] { comm.all_to_all(three, three); });
    refused("all_to_all: recv has 2 elements, and 4", [&] { comm.all_to_all(four, two); });
    refused("all_to_all_v: the block of rank 1 ends behind the 2 elements of recv",
            [&] { comm.all_to_all_v(two, ones, zero_one, two, huge, zero_one); });
    refused("all_to_all_v: an array for all ranks has 1 elements, and 2 are needed",
            [&] { comm.all_to_all_v(two, one, zero_one, two, ones, zero_one); });
    refused("all_gather_v: send has 2 elements, and 1", [&] { comm.all_gather_v(two, two, ones, zero_one); });
    refused("all_gather_v: the block of rank 1 ends behind", [&] {
      comm.all_gather_v({two.data(), 1}, {two.data(), 1}, ones, zero_one);
    });
    refused("reduce_scatter_v: send has 3 elements, and 2", [&] {
      comm.reduce_scatter_v(three, {two.data(), 1}, ones);
    });
    refused("reduce_scatter_v: an array", [&] { comm.reduce_scatter_v(two, two, one); });
    refused("count ", [&] { (void)comm.suggest_counts(SIZE_MAX, HDT_INT32); });
    refused("send: neither", [&] { comm.send({}, 0); });
    refused("recv: neither", [&] { comm.recv({}, 0); });
    refused("send_recv: send holds", [&] { comm.send_recv(two, own, floats, own); });
    // An error that only the library can find has its words.
    refused("2", [&] { comm.send(two, 2); });
    refused("2", [&] { (void)comm.recv_async(two, 2); });
    comm.barrier();
  });
}

}  // namespace
}  // namespace hdt::testing
