// indexed_index.cc: checks an index field by field. The bytes are foreign, so each field is copied out,
// checked, and only then kept. Every message names the file, what was found and what was expected.
#include "training/data/indexed_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace hdt::training {
namespace {

// A field at a byte offset. Fields are packed and hence unaligned. The caller has checked that they are
// inside.
template <typename T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Foreign bytes in a message: printable ones as they are, others as \xNN.
std::string shown(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const auto code = std::to_integer<unsigned char>(byte);
    const bool plain = code >= 0x20 && code < 0x7f && code != '\\' && code != '"';
    text += plain ? std::string(1, static_cast<char>(code)) : fmt::format("\\x{:02x}", code);
  }
  return text;
}

// The rest of the file is checked against these values.
struct Header {
  ElementType type;
  uint64_t sequences;
  uint64_t document_entries;
};

// Checks the header, and that the arrays it announces fill the rest of the file exactly.
Result<Header> parse_header(std::span<const std::byte> bytes, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, path + ": " + why);
  };
  // The magic comes first, so that a file of another kind is reported as such and not as truncated.
  const size_t compared = std::min(bytes.size(), kIndexMagic.size());
  if (compared > 0 && std::memcmp(bytes.data(), kIndexMagic.data(), compared) != 0) {
    return refuse(fmt::format("not a Megatron index: starts with \"{}\", expected \"MMIDIDX\\x00\\x00\"",
                              shown(bytes.first(compared))));
  }
  if (bytes.size() < kIndexHeaderBytes) {
    return refuse(fmt::format("truncated: {} bytes, expected at least the {} of the header", bytes.size(),
                              kIndexHeaderBytes));
  }
  const auto version = load<uint64_t>(bytes, 9);
  if (version != kIndexVersion) {
    return refuse(fmt::format("version {}, expected {}", version, kIndexVersion));
  }
  const auto code = load<uint8_t>(bytes, 17);
  const auto type = element_type_from_code(code);
  if (!type) return refuse(fmt::format("element type code {}, expected 1 to 8", code));
  if (!holds_tokens(*type)) {
    return refuse(
        fmt::format("elements are {}, expected integers: floats are no tokens", element_type_name(*type)));
  }
  // The counts are not checked yet.
  const Header header{*type, load<uint64_t>(bytes, 18), load<uint64_t>(bytes, 26)};

  // Each count is compared with what the remaining bytes can hold before it is multiplied, so no product
  // overflows.
  constexpr uint64_t kSequenceBytes = sizeof(int32_t) + sizeof(int64_t);
  const uint64_t room = bytes.size() - kIndexHeaderBytes;
  if (header.sequences > room / kSequenceBytes) {
    return refuse(
        fmt::format("{} sequences need {} bytes each, but only {} follow the header: truncated or damaged",
                    header.sequences, kSequenceBytes, room));
  }
  const uint64_t document_room = room - header.sequences * kSequenceBytes;
  if (header.document_entries > document_room / sizeof(int64_t)) {
    return refuse(
        fmt::format("{} document entries need 8 bytes each, but only {} are left for them: truncated or "
                    "damaged",
                    header.document_entries, document_room));
  }
  const uint64_t rest = document_room - header.document_entries * sizeof(int64_t);
  // A multimodal dataset has one more byte for each sequence.
  if (rest != 0 && rest == header.sequences) {
    return refuse("has a mode for each sequence (a multimodal dataset), expected text only");
  }
  if (rest != 0) return refuse(fmt::format("{} bytes follow the document entries, expected none", rest));
  if (header.document_entries == 0) {
    return refuse("0 document entries, expected one more than there are documents");
  }
  return header;
}

}  // namespace

Result<DatasetIndex> parse_dataset_index(std::span<const std::byte> bytes, uint64_t data_bytes,
                                         const std::string& prefix) {
  const std::string path = index_path(prefix);
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, path + ": " + why);
  };
  const auto parsed = parse_header(bytes, path);
  if (!parsed.is_ok()) return parsed.status();
  const Header header = parsed.value();
  const uint64_t element = element_bytes(header.type);
  const size_t pointers_at = kIndexHeaderBytes + header.sequences * sizeof(int32_t);
  const size_t documents_at = pointers_at + header.sequences * sizeof(int64_t);

  // 1. Sequences: each must begin where the one before ends.
  DatasetIndex index;
  index.type = header.type;
  index.token_starts.reserve(header.sequences + 1);
  uint64_t tokens = 0;  // at most data_bytes / element plus one sequence: no overflow
  for (uint64_t i = 0; i < header.sequences; ++i) {
    const auto size = load<int32_t>(bytes, kIndexHeaderBytes + i * sizeof(int32_t));
    const auto pointer = load<int64_t>(bytes, pointers_at + i * sizeof(int64_t));
    if (size < 0) return refuse(fmt::format("sequence {} has size {}, expected 0 or more", i, size));
    if (pointer < 0 || static_cast<uint64_t>(pointer) != tokens * element) {
      return refuse(fmt::format("sequence {} is at byte {}, expected {}, the end of the one before", i,
                                pointer, tokens * element));
    }
    index.token_starts.push_back(tokens);
    tokens += static_cast<uint64_t>(size);
    if (tokens > data_bytes / element) {
      return refuse(
          fmt::format("sequence {} ends at byte {}, but {} has only {}: one of the two is truncated or not "
                      "of this dataset",
                      i, tokens * element, data_path(prefix), data_bytes));
    }
  }
  index.token_starts.push_back(tokens);
  // Bytes after the last sequence mean that the two files do not belong together.
  if (tokens * element != data_bytes) {
    return refuse(fmt::format("the sequences fill {} bytes, but {} has {}: the two are not of one dataset",
                              tokens * element, data_path(prefix), data_bytes));
  }

  // 2. Documents: ascending, from 0 to the number of sequences. Empty documents are allowed.
  index.document_starts.reserve(header.document_entries);
  int64_t least = 0;
  for (uint64_t i = 0; i < header.document_entries; ++i) {
    const auto start = load<int64_t>(bytes, documents_at + i * sizeof(int64_t));
    if (start < least || static_cast<uint64_t>(start) > header.sequences || (i == 0 && start != 0)) {
      return refuse(fmt::format("document entry {} is {}, expected {} to {}", i, start, least,
                                i == 0 ? 0 : header.sequences));
    }
    index.document_starts.push_back(static_cast<uint64_t>(start));
    least = start;
  }
  if (index.document_starts.back() != header.sequences) {
    return refuse(fmt::format("the last document entry is {}, expected {}, the number of sequences",
                              index.document_starts.back(), header.sequences));
  }
  return index;
}

Result<uint64_t> token_start(std::span<const std::byte> bytes, const IndexSketch& sketch, uint64_t sequence,
                             const std::string& prefix) {
  if (sequence == sketch.sequences) return sketch.tokens;
  const uint64_t element = element_bytes(sketch.type);
  const size_t pointers_at = kIndexHeaderBytes + sketch.sequences * sizeof(int32_t);
  // Where the sequence before ends; 0 for the first one.
  uint64_t expected = 0;
  bool valid = true;
  if (sequence > 0) {
    const auto size = load<int32_t>(bytes, kIndexHeaderBytes + (sequence - 1) * sizeof(int32_t));
    const auto pointer = load<int64_t>(bytes, pointers_at + (sequence - 1) * sizeof(int64_t));
    const uint64_t most = sketch.tokens * element;
    valid = size >= 0 && pointer >= 0 && static_cast<uint64_t>(pointer) <= most;
    // Both are within limits then, so the sum does not overflow.
    if (valid) expected = static_cast<uint64_t>(pointer) + static_cast<uint64_t>(size) * element;
    valid = valid && expected <= most;
  }
  const auto pointer = load<int64_t>(bytes, pointers_at + sequence * sizeof(int64_t));
  if (!valid || pointer < 0 || static_cast<uint64_t>(pointer) != expected || expected % element != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: sequence {} is at byte {}, expected {}, the end of the one before: damaged",
                    index_path(prefix), sequence, pointer,
                    valid ? fmt::format("{}", expected) : std::string("another place")));
  }
  return expected / element;
}

Result<IndexSketch> sketch_dataset_index(std::span<const std::byte> bytes, uint64_t data_bytes,
                                         const std::string& prefix, const SketchSize& size) {
  // Those of small datasets cost nothing, and all damage is found.
  if (bytes.size() <=
      kIndexHeaderBytes + size.runs * size.entries * (sizeof(int32_t) + 2 * sizeof(int64_t))) {
    const auto whole = parse_dataset_index(bytes, data_bytes, prefix);
    if (!whole.is_ok()) return whole.status();
    const DatasetIndex& index = whole.value();
    return IndexSketch{index.type, index.token_starts.size() - 1, index.document_starts.size(),
                       index.token_starts.back()};
  }
  const std::string path = index_path(prefix);
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, path + ": " + why);
  };
  const auto parsed = parse_header(bytes, path);
  if (!parsed.is_ok()) return parsed.status();
  const Header header = parsed.value();
  const uint64_t element = element_bytes(header.type);
  IndexSketch sketch{header.type, header.sequences, header.document_entries, data_bytes / element};

  // 1. The last sequence must end where the data ends. Then both files belong together.
  if (header.sequences == 0) {
    if (data_bytes != 0)
      return refuse(fmt::format("there is no sequence, but {} has {} bytes: the two are not of one dataset",
                                data_path(prefix), data_bytes));
  } else {
    const uint64_t last = header.sequences - 1;
    const auto start = token_start(bytes, sketch, last, prefix);
    if (!start.is_ok()) return start.status();
    const auto length = load<int32_t>(bytes, kIndexHeaderBytes + last * sizeof(int32_t));
    if (length < 0 || (start.value() + static_cast<uint64_t>(length)) * element != data_bytes) {
      return refuse(
          fmt::format("the last sequence is {} tokens from byte {} on, but {} has {} bytes: the two "
                      "are not of one dataset",
                      length, start.value() * element, data_path(prefix), data_bytes));
    }
  }
  // 2. Runs of sequences, spread over all of them.
  const auto first_of_run = [&size](uint64_t run, uint64_t entries) {
    return entries <= size.entries ? 0 : (entries - size.entries) / (size.runs - 1) * run;
  };
  for (uint64_t run = 0; run < size.runs; ++run) {
    const uint64_t first = first_of_run(run, header.sequences);
    for (uint64_t i = first; i < std::min(first + size.entries, header.sequences); ++i)
      HDT_RETURN_IF_ERROR(token_start(bytes, sketch, i, prefix).status());
  }
  // 3. Document entries: both ends, and runs that must ascend.
  const size_t documents_at = kIndexHeaderBytes + header.sequences * (sizeof(int32_t) + sizeof(int64_t));
  const auto document = [&](uint64_t i) { return load<int64_t>(bytes, documents_at + i * sizeof(int64_t)); };
  const auto sequences = static_cast<int64_t>(header.sequences);
  if (document(0) != 0) return refuse(fmt::format("document entry 0 is {}, expected 0", document(0)));
  if (document(header.document_entries - 1) != sequences) {
    return refuse(fmt::format("the last document entry is {}, expected {}, the number of sequences",
                              document(header.document_entries - 1), sequences));
  }
  for (uint64_t run = 0; run < size.runs; ++run) {
    const uint64_t first = first_of_run(run, header.document_entries);
    int64_t least = 0;
    for (uint64_t i = first; i < std::min(first + size.entries, header.document_entries); ++i) {
      const int64_t start = document(i);
      if (start < least || start > sequences)
        return refuse(fmt::format("document entry {} is {}, expected {} to {}", i, start, least, sequences));
      least = start;
    }
  }
  return sketch;
}

}  // namespace hdt::training
