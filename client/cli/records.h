// Files of records: Debian package indexes, TSV, JSON lines; read, and the last two written.
//
//   deb822  stanzas separated by blank lines; the key is the field Package, the value the stanza as
//           it stands, without the line end of its last line
//   tsv     key TAB value, one record a line, with the escapes of text.h; with `hex` both in hex.
//           Then, where there is something to say, TAB \@ and counter (the value is its number) or
//           expires=N (Unix milliseconds)
//   jsonl   {"key": ..., "value": ...} a line; key_base64/value_base64 and key_hex/value_hex for
//           bytes that are no UTF-8; with `hex`, key and value are hex. {"key": ..., "counter": N}
//           is a counter; "expires_at_ms": N with a value; "version" is ignored. Other fields, and
//           a field that comes twice, are mistakes
//
// A byte-order mark at the beginning of a file, and a CR at the end of a line, are skipped.
//
// A key that comes again replaces the record before it: the last one wins.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/exit_code.h"

namespace rkv::cli {

enum class Format : std::uint8_t { kAuto, kDeb822, kTsv, kJsonl };

struct Record {
  std::string_view key;
  std::string_view value;              // of a counter: none
  std::optional<std::int64_t> number;  // of a counter
  std::uint64_t expires_at_ms = 0;     // 0 = never
};

// A record as a line, its end included.
std::string to_tsv(const Record& record, bool hex);
std::string to_jsonl(const Record& record, bool hex);

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

// `name` is for messages. kFailed, with FILE:LINE, and :COLUMN in bytes for tsv and jsonl.
// `lines_before`: of the file, before the text.
OrFailure<RecordSet> parse_records(std::string text, const std::string& name,
                                   const RecordOptions& options, std::uint64_t lines_before = 0);
// By the first line that is not blank, which must be whole; kAuto: there is none.
OrFailure<Format> told_format(std::string_view text, const std::string& name);

// A file as parts of some megabytes, so that one of any length can be loaded. Within a part a key
// comes once. Package indexes are one part.
class RecordReader {
 public:
  // "-" is standard input.
  static OrFailure<RecordReader> open(const std::string& path, RecordOptions options);
  // The next part; one without records and bad ones: the end.
  OrFailure<RecordSet> next();
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0: nobody knows

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  RecordReader(std::string path, RecordOptions options);
  OrFailure<std::string> read_part();
  std::string path_;
  std::string name_;
  RecordOptions options_;
  std::unique_ptr<std::FILE, Close> file_;
  std::string rest_;        // read, and of the next part
  std::uint64_t line_ = 0;  // lines in the parts before
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_total_ = 0;
};
// "-" is standard input.
OrFailure<std::string> read_file(const std::string& path);
// Keys, one a line, escaped or in hex.
OrFailure<std::vector<std::string>> parse_keys(std::string_view text, const std::string& name,
                                               bool hex);

// Why a key or value cannot be stored, or an empty text.
std::string key_problem(std::string_view key);
std::string value_problem(std::string_view value);

}  // namespace rkv::cli
