// The reader here is written from the formats' descriptions and shares nothing with the writer: its checksum
// goes bit by bit, its protocol buffer decoder walks any message.
#include "training/data/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "tests/training/data/temporary_folder.h"

namespace hdt::training {
namespace {

using ::testing::MatchesRegex;

uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t remainder = 0xffffffff;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = (static_cast<unsigned char>(byte) >> bit) & 1;
      const bool carry = ((remainder ^ in) & 1) != 0;
      remainder >>= 1;
      if (carry) remainder ^= 0x82f63b78;
    }
  }
  return remainder ^ 0xffffffff;
}

uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The events of a file, in order. Fails the test when the framing is broken.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    if (file.size() < 16) {
      ADD_FAILURE() << "a record is cut off";
      break;
    }
    const uint64_t length = little_endian(file.substr(0, 8));
    EXPECT_EQ(unmasked(static_cast<uint32_t>(little_endian(file.substr(8, 4)))),
              slow_crc32c(file.substr(0, 8)));
    if (length > file.size() - 16) {
      ADD_FAILURE() << "a record of " << length << " bytes is cut off";
      break;
    }
    const std::string_view event = file.substr(12, length);
    EXPECT_EQ(unmasked(static_cast<uint32_t>(little_endian(file.substr(12 + length, 4)))),
              slow_crc32c(event));
    found.emplace_back(event);
    file.remove_prefix(16 + length);
  }
  return found;
}

struct Field {
  uint64_t number = 0;  // of a varint or a fixed one
  std::string bytes;    // of a length-delimited one
};

std::map<uint64_t, Field> fields(std::string_view message) {
  std::map<uint64_t, Field> found;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < message.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    Field field;
    switch (key & 7) {
      case 0:
        field.number = varint();
        break;
      case 1:
        field.number = little_endian(message.substr(at, 8)), at += 8;
        break;
      case 5:
        field.number = little_endian(message.substr(at, 4)), at += 4;
        break;
      case 2: {
        const uint64_t length = varint();
        field.bytes = message.substr(at, length);
        EXPECT_EQ(field.bytes.size(), length);
        at += length;
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return found;
    }
    EXPECT_TRUE(found.emplace(key >> 3, field).second) << "field " << (key >> 3) << " twice";
  }
  EXPECT_EQ(at, message.size());
  return found;
}

template <typename To, typename From>
To reinterpreted(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

struct Scalar {
  double wall_time;
  int64_t step;
  std::string tag;
  float value;
};

Scalar scalar(std::string_view event) {
  auto outer = fields(event);
  EXPECT_TRUE(outer.count(1) == 1 && outer.count(2) == 1 && outer.count(5) == 1 && outer.size() == 3);
  auto summary = fields(outer[5].bytes);
  EXPECT_EQ(summary.size(), 1u);
  auto value = fields(summary[1].bytes);
  EXPECT_TRUE(value.count(1) == 1 && value.count(2) == 1 && value.size() == 2);
  return {reinterpreted<double>(outer[1].number), static_cast<int64_t>(outer[2].number), value[1].bytes,
          reinterpreted<float>(static_cast<uint32_t>(value[2].number))};
}

// The reference of this file, and the masked form, of the text whose CRC all descriptions name.
TEST(Crc32c, IsMasked) {
  EXPECT_EQ(slow_crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(unmasked(masked_crc32c("123456789")), 0xe3069283u);
  EXPECT_NE(masked_crc32c("123456789"), 0xe3069283u);
}

TEST(EventWriter, WritesWhatAReaderFinds) {
  const TemporaryFolder folder;
  double now = 1700000000.25;
  auto opened = EventWriter::open(folder.file("runs/one"), [&] { return now; });
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  EventWriter& writer = *opened.value();
  EXPECT_THAT(writer.path(), MatchesRegex(".*/runs/one/events\\.out\\.tfevents\\.1700000000\\..+\\." +
                                          std::to_string(::getpid())));
  EXPECT_EQ(records(read_all(writer.path())).size(), 1u);  // at once: TensorBoard lists the run

  const std::string long_tag(300, 't');
  now += 1;
  ASSERT_TRUE(writer.add_scalar("train/loss", 0, 5.5).is_ok());
  now += 1;
  ASSERT_TRUE(writer.add_scalar("train/loss", 1000000007, -2.25e-30).is_ok());
  ASSERT_TRUE(writer.add_scalar(long_tag, std::numeric_limits<int64_t>::max(), INFINITY).is_ok());
  ASSERT_TRUE(writer.add_scalar("nan", -1, NAN).is_ok());
  EXPECT_EQ(records(read_all(writer.path())).size(), 1u);
  ASSERT_TRUE(writer.flush().is_ok());

  const auto events = records(read_all(writer.path()));
  ASSERT_EQ(events.size(), 5u);
  auto version = fields(events[0]);
  EXPECT_EQ(version[3].bytes, "brain.Event:2");
  EXPECT_EQ(reinterpreted<double>(version[1].number), 1700000000.25);
  const Scalar first = scalar(events[1]);
  EXPECT_EQ(first.wall_time, 1700000001.25);
  EXPECT_EQ(first.step, 0);
  EXPECT_EQ(first.tag, "train/loss");
  EXPECT_EQ(first.value, 5.5F);
  const Scalar second = scalar(events[2]);
  EXPECT_EQ(second.wall_time, 1700000002.25);
  EXPECT_EQ(second.step, 1000000007);
  EXPECT_EQ(second.value, -2.25e-30F);
  EXPECT_EQ(scalar(events[3]).tag, long_tag);
  EXPECT_EQ(scalar(events[3]).step, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(scalar(events[3]).value, INFINITY);
  EXPECT_EQ(scalar(events[4]).step, -1);
  EXPECT_TRUE(std::isnan(scalar(events[4]).value));
}

TEST(EventWriter, ManyEventsAndTheEnd) {
  const TemporaryFolder folder;
  std::string path;
  {
    auto writer = EventWriter::open(folder.path());
    ASSERT_TRUE(writer.is_ok());
    path = writer.value()->path();
    for (int64_t step = 0; step < 5000; ++step) {
      ASSERT_TRUE(writer.value()->add_scalar("x", step, static_cast<double>(step)).is_ok());
    }
    EXPECT_GT(read_all(path).size(), 100000u);  // written out on the way
  }
  const auto events = records(read_all(path));
  ASSERT_EQ(events.size(), 5001u);
  for (int64_t step = 0; step < 5000; ++step) {
    ASSERT_EQ(scalar(events[static_cast<size_t>(step) + 1]).step, step);
  }
}

TEST(EventWriter, TwoInOneSecondAreTwoFilesAndABadFolderIsNamed) {
  const TemporaryFolder folder;
  const auto one = EventWriter::open(folder.path(), [] { return 5.0; });
  const auto two = EventWriter::open(folder.path(), [] { return 5.0; });
  ASSERT_TRUE(one.is_ok() && two.is_ok());
  EXPECT_NE(one.value()->path(), two.value()->path());
  EXPECT_EQ(folder.names().size(), 2u);
  write_all(folder.file("file"), "x");
  const auto bad = EventWriter::open(folder.file("file/runs"));
  ASSERT_FALSE(bad.is_ok());
  EXPECT_THAT(bad.status().message(),
              testing::HasSubstr("cannot create the folder " + folder.file("file/runs")));
}

}  // namespace
}  // namespace hdt::training
