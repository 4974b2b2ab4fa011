// dataset_maker.cc: the calling thread reads and writes; others parse and encode. If anything fails, the
// writers are destroyed unfinished and leave older datasets as they were.
#include "training/data/dataset_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/foreign_json.h"
#include "training/data/indexed_writer.h"
#include "training/data/parallel_encoder.h"

namespace hdt::training {
namespace {

// Text in memory: what all threads need to be busy, and room for batches that wait for a slow one.
constexpr size_t kLeastInFlight = size_t{16} << 20;
// How often progress is given while one batch takes long.
constexpr std::chrono::milliseconds kProgressPause{200};

using Writers = std::vector<std::unique_ptr<IndexedDatasetWriter>>;

// The documents of one line, one for each key. Foreign text.
Result<std::vector<std::string>> documents_of_line(const std::string& line,
                                                   const std::vector<std::string>& keys) {
  Result<nlohmann::json> parsed = parse_foreign_data(line, kMostLineBytes);
  if (!parsed.is_ok()) return parsed.status();
  nlohmann::json& json = parsed.value();
  if (!json.is_object()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("it is JSON of type {}, expected an object", json.type_name()));
  }
  std::vector<std::string> documents;
  for (const std::string& key : keys) {
    const auto found = json.find(key);
    if (found == json.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("it has no key '{}' (--json-keys names the keys to take)", key));
    }
    if (!found->is_string()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' is of type {}, expected a string", key, found->type_name()));
    }
    documents.push_back(std::move(found->get_ref<std::string&>()));
    json.erase(found);
  }
  return documents;
}

EncodedBatch encode_batch(const InputBatch& batch, const Tokenizer& tokenizer,
                          const MakeDatasetOptions& options) {
  EncodedBatch encoded;
  encoded.tokens.resize(std::max<size_t>(options.json_keys.size(), 1));
  const auto fail = [&](size_t text, const Status& status) {
    EncodedBatch failed;
    failed.status = Status(status.code(), batch.name(text) + ": " + status.message());
    return failed;
  };
  const auto encode = [&](size_t dataset, std::string_view text) -> Status {
    Result<std::vector<int64_t>> tokens = tokenizer.encode(text);
    if (!tokens.is_ok()) return tokens.status();
    if (options.append_eod && !tokens.value().empty()) tokens.value().push_back(*tokenizer.end_of_document());
    encoded.tokens[dataset].push_back(tokens.take());
    return Status::ok();
  };
  for (size_t text = 0; text < batch.texts.size(); ++text) {
    if (options.json_keys.empty()) {
      if (const Status status = encode(0, batch.texts[text]); !status.is_ok()) return fail(text, status);
      continue;
    }
    const Result<std::vector<std::string>> documents =
        documents_of_line(batch.texts[text], options.json_keys);
    if (!documents.is_ok()) return fail(text, documents.status());
    for (size_t key = 0; key < documents.value().size(); ++key) {
      if (const Status status = encode(key, documents.value()[key]); !status.is_ok())
        return fail(text, status);
    }
  }
  return encoded;
}

Status write_batch(const EncodedBatch& batch, Writers& writers) {
  HDT_RETURN_IF_ERROR(batch.status);
  for (size_t dataset = 0; dataset < writers.size(); ++dataset) {
    for (const std::vector<int64_t>& tokens : batch.tokens[dataset]) {
      if (!tokens.empty()) HDT_RETURN_IF_ERROR(writers[dataset]->add_sequence(tokens));
      HDT_RETURN_IF_ERROR(writers[dataset]->end_document());
    }
  }
  return Status::ok();
}

// Reads, has it encoded and writes until the source ends.
Status write_all(InputSource& source, ParallelEncoder& encoder, Writers& writers,
                 const MakeDatasetOptions& options) {
  const size_t most = std::max(kLeastInFlight, 2 * kBatchBytes * static_cast<size_t>(options.workers));
  MakeProgress done;
  bool more = true;
  while (more || encoder.in_flight() > 0) {
    while (more && (encoder.in_flight() == 0 || encoder.in_flight_bytes() < most)) {
      InputBatch batch;
      const Result<bool> read = source.next(batch);
      if (!read.is_ok()) {
        // A line before may be wrong as well, and the first one in the input is to be named.
        for (; encoder.in_flight() > 0;) {
          if (encoder.wait(kProgressPause)) HDT_RETURN_IF_ERROR(encoder.take().status);
        }
        return read.status();
      }
      more = read.value();
      if (more) encoder.put(std::move(batch));
    }
    if (encoder.in_flight() == 0) break;
    if (encoder.wait(kProgressPause)) {
      const EncodedBatch batch = encoder.take();
      HDT_RETURN_IF_ERROR(write_batch(batch, writers));
      done.documents += batch.texts;
      done.bytes += batch.bytes;
    }
    if (options.progress) options.progress(done);
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<MadeDataset>> make_datasets(InputSource& source, const Tokenizer& tokenizer,
                                               std::span<const std::string> prefixes,
                                               const MakeDatasetOptions& options) {
  if (options.append_eod && !tokenizer.end_of_document()) {
    return Status(Code::kInvalidArgument,
                  "the tokenizer has no end-of-document token, expected one to end each document with");
  }
  Writers writers;
  for (const std::string& prefix : prefixes) {
    auto created = IndexedDatasetWriter::create(prefix, element_type_for_vocabulary(tokenizer.vocab_size()));
    if (!created.is_ok()) return created.status();
    writers.push_back(created.take());
  }
  const auto encoder = ParallelEncoder::start(
      options.workers, [&](const InputBatch& batch) { return encode_batch(batch, tokenizer, options); });
  if (!encoder.is_ok()) return encoder.status();
  HDT_RETURN_IF_ERROR(write_all(source, *encoder.value(), writers, options));
  for (size_t i = 0; i < writers.size(); ++i) {
    if (writers[i]->token_count() == 0)
      return Status(Code::kInvalidArgument, prefixes[i] + ": there is no text in the input");
    HDT_RETURN_IF_ERROR(writers[i]->prepare());
  }
  std::vector<MadeDataset> made;
  for (const auto& writer : writers) {
    HDT_RETURN_IF_ERROR(writer->finish());
    made.push_back({writer->document_count(), writer->token_count()});
  }
  return made;
}

}  // namespace hdt::training
