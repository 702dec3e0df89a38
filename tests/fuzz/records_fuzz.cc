// Files of records (client/cli/records.h): whatever the bytes, the answer is records or one
// sentence, and records that were read are written so that they are read again as they are.
#include <string>

#include "client/cli/records.h"
#include "tests/fuzz/fuzz.h"

namespace {

using rkv::cli::Format;
using rkv::cli::Record;
using rkv::cli::RecordOptions;
using rkv::cli::RecordSet;

bool equal(const Record& a, const Record& b) {
  return a.key == b.key && a.value == b.value && a.number == b.number &&
         a.expires_at_ms == b.expires_at_ms;
}

void write_and_read(const RecordSet& set, Format format, bool hex) {
  std::string text;
  for (const Record& record : set.records)
    text += format == Format::kTsv ? to_tsv(record, hex) : to_jsonl(record, hex);
  const auto again =
      rkv::cli::parse_records(text, "again", {.format = format, .hex = hex, .on_bad = {}});
  RKV_CHECK(again, "what was written cannot be read");
  RKV_CHECK(again->records.size() == set.records.size() && again->bad == 0 && again->replaced == 0,
            "records were lost or added");
  for (std::size_t i = 0; i < set.records.size(); ++i)
    RKV_CHECK(equal(again->records[i], set.records[i]), "a record is another one");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rkv::fuzz::Input input(data, size);
  const auto flags = input.number<std::uint8_t>();
  const std::string text(rkv::as_text(input.rest()));
  const bool hex = (flags & 8U) != 0;
  std::uint64_t bad = 0;
  RecordOptions options{.format = static_cast<Format>(flags % 4U), .hex = hex, .on_bad = {}};
  if ((flags & 4U) != 0) {
    options.on_bad = [&bad](const std::string& sentence) {
      ++bad;
      RKV_CHECK(sentence.starts_with("file:"), "a complaint without a place");
    };
  }
  const auto set = rkv::cli::parse_records(text, "file", options);
  if (!set) {
    RKV_CHECK(!set.error().sentence.empty() && set.error().sentence.find('\n') == std::string::npos,
              "a failure that is not one sentence");
    return 0;
  }
  RKV_CHECK(set->bad == bad, "a bad record that nobody heard of");
  std::uint64_t bytes = 0;
  for (const Record& record : set->records) {
    RKV_CHECK(
        rkv::cli::key_problem(record.key).empty() && rkv::cli::value_problem(record.value).empty(),
        "a record that cannot be stored");
    bytes += record.key.size() + record.value.size();
  }
  RKV_CHECK(bytes == set->bytes, "bytes that add up to something else");
  write_and_read(*set, Format::kTsv, hex);
  write_and_read(*set, Format::kJsonl, hex);
  return 0;
}
