// indexed_format.h: the layout of a Megatron indexed dataset. PREFIX.bin holds the tokens of all sequences,
// PREFIX.idx says where each sequence lies. All numbers are little endian and packed without padding:
//
//   .idx  9 bytes   "MMIDIDX\0\0"
//         uint64    version, 1
//         uint8     element type code
//         uint64    number of sequences S
//         uint64    number of entries of doc_idx D, one more than there are documents
//         int32[S]  sizes: tokens of each sequence
//         int64[S]  pointers: byte offset of each sequence in .bin
//         int64[D]  doc_idx: first sequence of each document, then S
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hdt::training {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats here are read as little-endian");

// The header: the first five fields above.
inline constexpr std::array<char, 9> kIndexMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr size_t kIndexHeaderBytes = 34;

// The type of a token in .bin. The values are the codes in the file.
enum class ElementType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUint16 = 8,
};

// The type of a code in a file; nothing if the code is unknown.
std::optional<ElementType> element_type_from_code(uint8_t code);
const char* element_type_name(ElementType type);
size_t element_bytes(ElementType type);
// True for integers, false for floats, which the format allows but which cannot be tokens.
bool holds_tokens(ElementType type);
// The smallest and the largest value of an integer type; 0 for floats.
int64_t element_minimum(ElementType type);
int64_t element_maximum(ElementType type);
// The smaller of uint16 and int32, the types used in practice, that holds the tokens 0 .. vocab_size - 1.
ElementType element_type_for_vocabulary(int64_t vocab_size);

std::string index_path(const std::string& prefix);  // PREFIX.idx
std::string data_path(const std::string& prefix);   // PREFIX.bin

}  // namespace hdt::training
