// Files of records: Debian package indexes, TSV, JSON lines. Read whole into memory.
//
//   deb822  stanzas separated by blank lines; the key is the field Package, the value the stanza as
//           it stands, without the line end of its last line
//   tsv     key TAB value, one record a line, with the escapes of text.h; with `hex` both in hex
//   jsonl   {"key": ..., "value": ...} a line; key_base64/value_base64 and key_hex/value_hex for
//           bytes that are no UTF-8; with `hex`, key and value are hex
//
// A key that comes again replaces the record before it: the last one wins.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/exit_code.h"

namespace rkv::cli {

enum class Format : std::uint8_t { kAuto, kDeb822, kTsv, kJsonl };

struct Record {
  std::string_view key;
  std::string_view value;
};

struct RecordSet {
  RecordSet() = default;
  RecordSet(RecordSet&&) noexcept = default;  // a copy would keep pointing into the original
  RecordSet& operator=(RecordSet&&) noexcept = default;

  std::deque<std::string> texts;  // what the views point into; never moved once in here
  std::vector<Record> records;    // each key once, in the order of their first coming
  std::uint64_t bytes = 0;        // of all keys and values
  std::uint64_t replaced = 0;     // records whose key came again
  std::uint64_t bad = 0;          // records left out
};

struct RecordOptions {
  Format format = Format::kAuto;
  bool hex = false;
  // Called for a bad record with "FILE:LINE: sentence"; it is left out. Without: reading ends
  // there.
  std::function<void(const std::string&)> on_bad;
};

// `name` is for messages. kFailed, with FILE:LINE where there is one.
OrFailure<RecordSet> parse_records(std::string text, const std::string& name,
                                   const RecordOptions& options);
// "-" is standard input.
OrFailure<std::string> read_file(const std::string& path);
// Keys, one a line, escaped or in hex.
OrFailure<std::vector<std::string>> parse_keys(std::string_view text, const std::string& name,
                                               bool hex);

// Why a key or value cannot be stored, or an empty text.
std::string key_problem(std::string_view key);
std::string value_problem(std::string_view value);

}  // namespace rkv::cli
