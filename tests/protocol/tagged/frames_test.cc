// frames_test.cc: the two halves of a connection, frame by frame: what a peer may send, and what ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "tests/protocol/tagged/memory_fabric.h"
#include "transports/tagged/control.h"
#include "transports/tagged/incoming.h"
#include "transports/tagged/operation.h"
#include "transports/tagged/outgoing.h"

namespace hdt::transport::tagged {

namespace {

class Sink : public FrameSink {
 public:
  std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) override {
    return region == 7 && bytes <= memory.size() && offset <= memory.size() - bytes ? memory.data() + offset
                                                                                    : nullptr;
  }
  void on_probe() override { ++probes; }
  Status on_taken(uint64_t number) override { return taken = number, Status::ok(); }
  void on_message(std::span<const std::byte> message) override { messages.push_back(message.size()); }
  void on_written(const Immediate&, std::span<const std::byte> placed) override {
    written.push_back(placed.size());
  }

  std::vector<std::byte> memory = std::vector<std::byte>(100'000, std::byte{7});
  int probes = 0;
  uint64_t taken = 0;
  std::vector<size_t> messages;
  std::vector<size_t> written;
};

// A connection's receiving half, and the data path that its peer sends by.
class Halves {
 public:
  Halves() {
    EXPECT_TRUE(mine_.connect(theirs_.address()).is_ok());
    EXPECT_TRUE(theirs_.connect(mine_.address()).is_ok());
    EXPECT_TRUE(receive().is_ok());
  }
  // Sends `frame` as number `number` and has it looked at.
  Status give(uint64_t number, FrameHeader header, size_t body_bytes) {
    std::vector<std::byte> frame(sizeof header + body_bytes, std::byte{1});
    std::memcpy(frame.data(), &header, sizeof header);
    EXPECT_TRUE(theirs_.send(number, frame.data(), frame.size(), 0).value());
    std::vector<Finished> ignored;
    EXPECT_TRUE(theirs_.poll(ignored).is_ok());
    return receive();
  }
  Status receive() {
    EXPECT_TRUE(incoming_.post(mine_).is_ok());
    std::vector<Finished> finished;
    EXPECT_TRUE(mine_.poll(finished).is_ok());
    for (const Finished& operation : finished) {
      const uint64_t number = number_of(operation.id);
      const bool segment = operation_of(operation.id) == Operation::kSegmentReceived;
      HDT_RETURN_IF_ERROR(segment ? incoming_.on_segment(number, operation.bytes, sink_)
                                  : incoming_.on_frame(number, operation.bytes, sink_));
    }
    return Status::ok();
  }
  static FrameHeader header(FrameType type, uint32_t payload_bytes) {
    FrameHeader made;
    made.type = type;
    made.payload_bytes = payload_bytes;
    return made;
  }
  Status probe() { return give(0, header(FrameType::kProbe, 0), 0); }

  std::shared_ptr<MemoryFabric::Exchange> exchange_ = std::make_shared<MemoryFabric::Exchange>();
  MemoryDataPath mine_{exchange_};
  MemoryDataPath theirs_{exchange_};
  Incoming incoming_;
  Sink sink_;
};

class Frames : public testing::Test, protected Halves {};

// Whoever changes these bytes raises kHelloVersion.
TEST(TaggedControl, TheBytesOfThisVersion) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  tcp::Fd far(ends[1]);
  Control control;
  control.attach(tcp::Fd(ends[0]));
  control.push_here();
  control.push_message(std::as_bytes(std::span("ab", 2)));
  control.push_hello({.segment_bytes = 4096, .protocol = "p", .address = {std::byte{7}, std::byte{8}}});
  ASSERT_TRUE(control.flush());
  std::string sent(100, 0);
  sent.resize(static_cast<size_t>(::recv(far.get(), sent.data(), sent.size(), 0)));
  EXPECT_EQ(sent, std::string("HM\2\0abAHDTC\2\0\1\0\2\0\0\0\0\20\0\0p\7\10", 26));
}

}  // namespace

TEST_F(Frames, AreDeliveredInOrderHoweverTheyCome) {
  EXPECT_TRUE(give(2, header(FrameType::kMessage, 30), 30).is_ok());
  EXPECT_TRUE(give(1, header(FrameType::kMessage, 20), 20).is_ok());
  EXPECT_TRUE(sink_.messages.empty());
  EXPECT_TRUE(probe().is_ok());
  EXPECT_EQ(sink_.probes, 1);
  EXPECT_EQ(sink_.messages, (std::vector<size_t>{20, 30}));
  EXPECT_EQ(incoming_.taken(), 3u);
}

TEST_F(Frames, MalformedOnesAreRefused) {
  const auto changed = [](FrameHeader frame, auto change) {
    change(frame);
    return frame;
  };
  const FrameHeader message = header(FrameType::kMessage, 10);
  const FrameHeader write = header(FrameType::kWrite, 10);
  struct Case {
    FrameHeader header;
    size_t body;
  };
  const Case cases[] = {
      {changed(message, [](FrameHeader& h) { h.magic ^= 1; }), 10},
      {changed(message, [](FrameHeader& h) { h.version = 2; }), 10},
      {changed(message, [](FrameHeader& h) { h.type = static_cast<FrameType>(9); }), 10},
      {changed(message, [](FrameHeader& h) { h.reserved = 1; }), 10},
      {changed(message, [](FrameHeader& h) { h.reserved2 = 1; }), 10},
      {changed(message, [](FrameHeader& h) { h.region = 7; }), 10},
      {message, 9},
      {message, 11},
      {header(FrameType::kMessage, 0), 0},
      {header(FrameType::kProbe, 0), 0},  // a second one
      {header(FrameType::kTaken, 4), 4},
      {write, 10},  // no immediate
      {changed(write, [](FrameHeader& h) { h.payload_bytes = UINT32_MAX; }), kImmediateBytes},
      {write, kImmediateBytes + 10},  // to a region that there is not
      {changed(write, [](FrameHeader& h) { h.region = 7, h.offset = 99'991; }), kImmediateBytes + 10},
  };
  const std::vector<std::byte> untouched = sink_.memory;
  for (const Case& wrong : cases) {
    SCOPED_TRACE(&wrong - cases);
    Halves halves;
    EXPECT_TRUE(halves.probe().is_ok());
    EXPECT_FALSE(halves.give(1, wrong.header, wrong.body).is_ok());
    EXPECT_TRUE(halves.sink_.messages.empty());
    EXPECT_TRUE(halves.sink_.written.empty());
    EXPECT_EQ(halves.sink_.memory, untouched);
  }
  EXPECT_FALSE(give(0, message, 10).is_ok()) << "a connection begins with a probe";
}

TEST_F(Frames, PayloadOfAnotherLengthThanAnnouncedIsRefused) {
  incoming_.set_segment_bytes(kMinSegmentBytes);
  ASSERT_TRUE(probe().is_ok());
  FrameHeader write = header(FrameType::kWrite, 10'000);
  write.region = 7;
  write.offset = 100;
  ASSERT_TRUE(give(1, write, kImmediateBytes).is_ok());
  EXPECT_TRUE(incoming_.inside_write_to(7));
  EXPECT_FALSE(incoming_.inside_write_to(8));
  ASSERT_TRUE(receive().is_ok());
  const std::vector<std::byte> payload(kMinSegmentBytes - 1, std::byte{1});
  ASSERT_TRUE(theirs_.send(kSegmentTag | 0, payload.data(), payload.size(), 0).value());
  std::vector<Finished> ignored;
  ASSERT_TRUE(theirs_.poll(ignored).is_ok());
  EXPECT_THAT(receive().message(), testing::HasSubstr("segment"));
  EXPECT_TRUE(sink_.written.empty());
}

TEST_F(Frames, WindowHoldsFramesBackAndAnswersOvertakeThem) {
  Outgoing outgoing;
  std::vector<Outgoing::Sent> sent;
  const std::vector<std::byte> message(10);
  for (uint64_t i = 0; i < kFrameWindow + 5; ++i) outgoing.push_message(message, i + 1);
  std::vector<Finished> finished;
  bool told = false;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(outgoing.flush(mine_, 0, false, told).is_ok());
    ASSERT_TRUE(theirs_.poll(finished).is_ok());
    for (uint64_t n = 0; n < kFrameWindow + 6; ++n) {
      static std::byte place[kMaxFrameBytes];
      ASSERT_TRUE(theirs_.receive(n, place, sizeof place, n).is_ok());
    }
    finished.clear();
    ASSERT_TRUE(mine_.poll(finished).is_ok());
    for (const Finished& operation : finished)
      ASSERT_TRUE(outgoing.on_frame_sent(number_of(operation.id), sent).is_ok());
  }
  EXPECT_TRUE(sent.empty()) << "nobody has taken anything";
  EXPECT_FALSE(outgoing.on_taken(kFrameWindow + 1, sent).is_ok()) << "more than has been sent";
  ASSERT_TRUE(outgoing.flush(mine_, 3, true, told).is_ok());
  EXPECT_TRUE(told) << "although the window is full";
  ASSERT_TRUE(outgoing.on_taken(2, sent).is_ok());
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].token, 1u);
  EXPECT_EQ(sent[1].token, 2u);
  EXPECT_FALSE(outgoing.on_taken(1, sent).is_ok()) << "what was taken stays taken";
  sent.clear();
  outgoing.give_up(sent);
  EXPECT_EQ(sent.size(), kFrameWindow + 3);
}

}  // namespace hdt::transport::tagged
