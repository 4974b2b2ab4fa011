// safetensors_test.cc: files are read as they were written, whole and in parts; damaged ones are refused with
// the reason, whichever byte of the header is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/sha256_stream.h"
#include "tests/training/checkpoint/examples.h"
#include "tests/training/data/temporary_folder.h"
#include "training/checkpoint/safetensors.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string file_of(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, sizeof size);
  return length + header + data;
}

// The reason why a file of these bytes is refused; "" if it is not.
std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_all(path, bytes);
  const auto opened = SafetensorsFile::open(path);
  if (opened.is_ok()) return "";
  EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(opened.status().message(), HasSubstr(path));
  return opened.status().message();
}

constexpr char kGood[] = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

// kGood with one place replaced.
std::string changed(const std::string& place, const std::string& by) {
  std::string header = kGood;
  const size_t at = header.find(place);
  EXPECT_NE(at, std::string::npos) << place;
  return file_of(header.replace(at, place.size(), by), std::string(11, 'x'));
}

TEST(Safetensors, TheFormatByHand) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1.5F, -2.0F};
  const TensorView tensor = typed_view("w", {2, 1}, values);
  const auto written = write_safetensors(folder.file("f"), std::span(&tensor, 1), {{"format", "pt"}});
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  const std::string file = read_all(folder.file("f"));
  EXPECT_EQ(written.value().file_bytes, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header, nlohmann::json::parse(R"({"__metadata__":{"format":"pt"},
      "w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})"));
  EXPECT_EQ(file[8], '{');
  EXPECT_EQ(std::memcmp(file.data() + 8 + length, values.data(), 8), 0);
  EXPECT_EQ(file.size(), 8 + length + 8);
}

TEST(Safetensors, AnyShapesAndTypesAreReadAsWritten) {
  std::mt19937_64 random(seed_of_test());
  const auto below = [&](uint64_t end) { return random() % end; };
  const TemporaryFolder folder;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> data;
    std::vector<TensorView> tensors;
    const size_t count = below(8);
    for (size_t i = 0; i < count; ++i) {
      TensorView tensor{"t" + std::to_string(i), static_cast<Dtype>(below(15)), {}, {}};
      for (size_t sizes = below(5); sizes > 0; --sizes) tensor.shape.push_back(below(7));
      std::string bytes(*element_count(tensor.shape, tensor.dtype) * dtype_bytes(tensor.dtype), '\0');
      for (char& byte : bytes) byte = static_cast<char>(below(256));
      data.push_back(std::move(bytes));
      tensors.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < count; ++i) tensors[i].bytes = bytes_of(data[i]);
    const std::string path = folder.file("f");
    const auto written = write_safetensors(path, tensors, {{"round", std::to_string(round)}});
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
    const auto opened = SafetensorsFile::open(path);
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    ASSERT_EQ(opened.value().header().tensors.size(), count);
    EXPECT_EQ(opened.value().header().metadata.at("round"), std::to_string(round));
    for (size_t i = 0; i < count; ++i) {
      const TensorEntry* const entry = opened.value().find(tensors[i].name);
      ASSERT_NE(entry, nullptr);
      EXPECT_EQ(entry->dtype, tensors[i].dtype);
      EXPECT_EQ(entry->shape, tensors[i].shape);
      const uint64_t element = dtype_bytes(entry->dtype);
      const uint64_t first = below(entry->elements + 1);
      const uint64_t some = below(entry->elements - first + 1);
      const std::string expected = data[i].substr(first * element, some * element);
      std::string part(some * element, '\0');
      ASSERT_TRUE(
          opened.value().read(tensors[i].name, first, std::as_writable_bytes(std::span(part))).is_ok());
      EXPECT_EQ(part, expected);
      part.assign(part.size(), '\0');
      const auto hash =
          opened.value().read_hashed(tensors[i].name, first, std::as_writable_bytes(std::span(part)));
      ASSERT_TRUE(hash.is_ok());
      EXPECT_EQ(part, expected);
      EXPECT_EQ(hash.value(), written.value().hashes[i]);
    }
  }
}

// Several pieces of 4 MB, and a part in the midst of them.
TEST(Safetensors, ALargeTensorIsHashedPieceByPiece) {
  const TemporaryFolder folder;
  std::vector<float> values((size_t{9} << 20) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9973);
  const TensorView tensor = typed_view("large", {values.size()}, values);
  const auto written = write_safetensors(folder.file("f"), std::span(&tensor, 1));
  ASSERT_TRUE(written.is_ok());
  Sha256Stream hash;
  hash.update(tensor.bytes);
  EXPECT_EQ(written.value().hashes[0], hash.finish().take());
  const auto file = SafetensorsFile::open(folder.file("f"));
  ASSERT_TRUE(file.is_ok());
  std::vector<float> part(values.size() - 1'500'000);
  const auto read = file.value().read_hashed("large", 1'400'000, std::as_writable_bytes(std::span(part)));
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value(), written.value().hashes[0]);
  EXPECT_EQ(0, std::memcmp(part.data(), values.data() + 1'400'000, part.size() * sizeof(float)));
}

// FIPS 180-4's example of one block.
TEST(Safetensors, TheHashIsSha256) {
  Sha256Stream hash;
  hash.update(bytes_of("a"));
  hash.update(bytes_of("bc"));
  EXPECT_EQ(hash.finish().take(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(is_sha256_text(Sha256Stream().finish().take()));
  EXPECT_FALSE(is_sha256_text(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256_text(std::string(64, 'A')));
}

TEST(Safetensors, PartsBeyondTheTensorAreRefused) {
  const TemporaryFolder folder;
  write_all(folder.file("f"), file_of(kGood, std::string(11, 'x')));
  const auto file = SafetensorsFile::open(folder.file("f"));
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  std::string out(8, '\0');
  const auto read = [&](const char* name, uint64_t first, size_t bytes) {
    return file.value().read(name, first, std::as_writable_bytes(std::span(out)).first(bytes));
  };
  EXPECT_TRUE(read("a", 0, 8).is_ok());
  EXPECT_TRUE(read("a", 2, 0).is_ok());
  EXPECT_THAT(read("a", 1, 8).message(), HasSubstr("do not fit its 2 elements"));
  EXPECT_THAT(read("a", 3, 0).message(), HasSubstr("do not fit"));
  EXPECT_THAT(read("a", ~uint64_t{0}, 4).message(), HasSubstr("do not fit"));
  EXPECT_THAT(read("a", 0, 3).message(), HasSubstr("do not fit"));
  EXPECT_THAT(read("c", 0, 0).message(), HasSubstr("tensor 'c': there is none"));
  EXPECT_FALSE(file.value().read_hashed("a", 1, std::as_writable_bytes(std::span(out))).is_ok());
}

TEST(Safetensors, DamagedHeadersAreRefusedWithTheReason) {
  EXPECT_EQ(refusal(file_of(kGood, std::string(11, 'x'))), "");
  EXPECT_EQ(refusal(file_of(std::string(kGood) + "     ", std::string(11, 'x'))), "");
  EXPECT_EQ(refusal(file_of("{}", "")), "");
  EXPECT_THAT(refusal(""), HasSubstr("too short"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("too short"));
  EXPECT_THAT(refusal(std::string(8, '\xff') + "{}"), HasSubstr("its header has"));
  EXPECT_THAT(refusal(file_of(kGood, "").substr(0, 40)), HasSubstr("its header has"));
  EXPECT_THAT(refusal(file_of("", "")), HasSubstr("does not begin with"));
  EXPECT_THAT(refusal(file_of(" {}", "")), HasSubstr("does not begin with"));
  EXPECT_THAT(refusal(file_of("{", "")), HasSubstr("no JSON"));
  EXPECT_THAT(refusal(file_of("{" + std::string(200, '['), "")), HasSubstr("its header: "));
  EXPECT_THAT(refusal(changed("F32", "F33")), HasSubstr("tensor 'a': unknown dtype 'F33'"));
  EXPECT_THAT(refusal(changed("\"F32\"", "32")), HasSubstr("'dtype' is no text"));
  EXPECT_THAT(refusal(changed("\"dtype\":\"F32\",", "")), HasSubstr("'dtype' is missing"));
  EXPECT_THAT(refusal(changed("\"shape\":[2],", "")), HasSubstr("'shape' is missing"));
  EXPECT_THAT(refusal(changed("[2]", "2")), HasSubstr("'shape' is no array"));
  EXPECT_THAT(refusal(changed("[2]", "[-2]")), HasSubstr("no whole number"));
  EXPECT_THAT(refusal(changed("[2]", "[2.0]")), HasSubstr("no whole number"));
  EXPECT_THAT(refusal(changed("[2]", "[4294967296,4294967296]")), HasSubstr("too large"));
  EXPECT_THAT(refusal(changed("[2]", "[3]")),
              HasSubstr("it has 8 bytes of data, its dtype and shape need 12"));
  EXPECT_THAT(refusal(changed("[0,8]", "[0]")), HasSubstr("two whole numbers"));
  EXPECT_THAT(refusal(changed("[0,8]", "8")), HasSubstr("two whole numbers"));
  EXPECT_THAT(refusal(changed("[0,8]", "[0,-8]")), HasSubstr("two whole numbers"));
  EXPECT_THAT(refusal(changed("[0,8]", "[8,0]")), HasSubstr("are not in the file's 11 bytes"));
  EXPECT_THAT(refusal(changed("[8,11]", "[9,12]")), HasSubstr("tensor 'b'"));
  EXPECT_THAT(refusal(changed("[8,11]", "[7,10]")), HasSubstr("overlap"));
  EXPECT_THAT(refusal(changed("[8,11]", "[18446744073709551613,18446744073709551616]")),
              HasSubstr("two whole numbers"));
  EXPECT_THAT(refusal(changed("[2],\"data_offsets\":[0,8]", "[1],\"data_offsets\":[4,8]")),
              HasSubstr("a gap of 4 bytes"));
  EXPECT_THAT(refusal(file_of(kGood, std::string(12, 'x'))), HasSubstr("11 bytes, the file has 12"));
  EXPECT_THAT(refusal(file_of(kGood, std::string(10, 'x'))), HasSubstr("tensor 'b'"));
  EXPECT_THAT(refusal(changed("\"b\":", "\"a\":")), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(changed("\"b\":", "\"\":")), HasSubstr("a tensor's name of 0 bytes"));
  EXPECT_THAT(refusal(changed("\"b\":", "\"\\u0007\":")), HasSubstr("plain text"));
  EXPECT_THAT(refusal(changed("\"b\":", "\"" + std::string(1025, 'b') + "\":")), HasSubstr("1025 bytes"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":1})", "")), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":1}})", "")), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(file_of(R"({"a":1})", "")), HasSubstr("tensor 'a'"));
}

// A header with any one bit flipped is refused, or says something else of which each part holds again.
TEST(Safetensors, AnyFlippedBitOfTheHeaderIsRefusedOrHarmless) {
  const std::string good = kGood;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    const auto header = parse_safetensors_header(text, 11);
    if (!header.is_ok()) continue;
    uint64_t bytes = 0;
    for (const auto& [name, entry] : header.value().tensors) {
      EXPECT_LE(entry.end, 11U);
      EXPECT_EQ(entry.end - entry.begin, entry.elements * dtype_bytes(entry.dtype));
      bytes += entry.end - entry.begin;
    }
    EXPECT_EQ(bytes, 11U);
  }
}

TEST(Safetensors, WhatCannotBeWrittenIsRefusedAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::vector<float> values(6);
  const auto write = [&](std::vector<TensorView> tensors, const std::string& path) {
    const auto written = write_safetensors(path, tensors);
    EXPECT_FALSE(written.is_ok());
    return written.status().message();
  };
  const std::string path = folder.file("f");
  EXPECT_THAT(write({typed_view("a", {5}, values)}, path), HasSubstr("tensor 'a': it has 24 bytes"));
  EXPECT_THAT(write({typed_view("a", {6}, values), typed_view("a", {6}, values)}, path), HasSubstr("twice"));
  EXPECT_THAT(write({typed_view("", {6}, values)}, path), HasSubstr("no name"));
  EXPECT_THAT(write({typed_view("__metadata__", {6}, values)}, path), HasSubstr("no name"));
  EXPECT_THAT(write({typed_view("a\n", {6}, values)}, path), HasSubstr("no name"));
  EXPECT_THAT(write({typed_view("a", {6}, values)}, folder.file("none/f")), HasSubstr("none/f"));
  const TensorView tensor = typed_view("a", {6}, values);
  EXPECT_THAT(write_safetensors(path, std::span(&tensor, 1), {{"a", "\n"}}).status().message(),
              HasSubstr("plain text"));
  const std::atomic<bool> stop{true};
  EXPECT_EQ(write_safetensors(path, std::span(&tensor, 1), {}, &stop).status().code(), Code::kAborted);
  EXPECT_TRUE(folder.names().empty());
}

TEST(Safetensors, WhatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(SafetensorsFile::open(folder.path()).status().message(), HasSubstr("not a regular file"));
  EXPECT_EQ(SafetensorsFile::open(folder.file("none")).status().code(), Code::kSystem);
}

TEST(Safetensors, AFileThatIsCutWhileItIsOpenIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  write_all(path, file_of(kGood, std::string(11, 'x')));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.is_ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::string out(3, '\0');
  EXPECT_THAT(file.value().read("b", 0, std::as_writable_bytes(std::span(out))).message(),
              HasSubstr("was cut"));
  EXPECT_FALSE(file.value().read_hashed("b", 0, {}).is_ok());
}

}  // namespace
}  // namespace hdt::training
