// Files of records: Debian package indexes, TSV and JSON lines. All three are read; TSV and JSON
// lines are also written.
//
//   deb822  Stanzas separated by blank lines. The key is the field Package. The value is the stanza
//           as it is, without the line end of its last line.
//   tsv     key TAB value, one record a line, with the escapes of text.h; with `hex` both in hex.
//           A third column is optional: TAB \@ and counter (the value is the counter's number) or
//           expires=N (Unix milliseconds).
//   jsonl   {"key": ..., "value": ...} a line; key_base64/value_base64 and key_hex/value_hex for
//           bytes that are not UTF-8; with `hex`, key and value are hex. {"key": ..., "counter": N}
//           is a counter. "expires_at_ms": N may accompany a value. "version" is ignored. Any other
//           field is a mistake, and so is a field that occurs twice.
//
// A byte-order mark at the beginning of a file, and a CR at the end of a line, are skipped.
//
// A key that occurs again replaces the record before: the last record wins.
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
#include "rkv/limits.h"

namespace rkv::cli {

enum class Format : std::uint8_t { kAuto, kDeb822, kTsv, kJsonl };

struct Record {
  std::string_view key;
  std::string_view value;              // empty for a counter
  std::optional<std::int64_t> number;  // number of a counter
  std::uint64_t expires_at_ms = 0;     // 0 = never
};

// Formats a record as a line, with its line end.
std::string to_tsv(const Record& record, bool hex);
std::string to_jsonl(const Record& record, bool hex);

struct RecordSet {
  RecordSet() = default;
  RecordSet(RecordSet&&) noexcept = default;  // a copy would keep pointing into the original
  RecordSet& operator=(RecordSet&&) noexcept = default;

  std::deque<std::string> texts;  // the bytes that the views point into; a text never moves
  std::vector<Record> records;    // each key once, in the order of first occurrence
  std::uint64_t bytes = 0;        // sum over all keys and values
  std::uint64_t replaced = 0;     // records whose key occurred again
  std::uint64_t bad = 0;          // records skipped as bad
};

struct RecordOptions {
  Format format = Format::kAuto;
  bool hex = false;
  // Called for a bad record with "FILE:LINE: sentence"; the record is skipped. If empty, reading
  // ends at a bad record.
  std::function<void(const std::string&)> on_bad;
};

// Parses records. `name` is for messages. `lines_before`: lines of the file before the text.
// kFailed: the sentence begins with FILE:LINE, and :COLUMN in bytes for tsv and jsonl.
OrFailure<RecordSet> parse_records(std::string text, const std::string& name,
                                   const RecordOptions& options, std::uint64_t lines_before = 0);
// Detects the format by the first line that is not blank. That line must be complete. kAuto: all
// lines are blank.
OrFailure<Format> detect_format(std::string_view text, const std::string& name);

// Bytes of the longest line of a file of records: each byte of key and value as an escape of JSON,
// and the names of the fields.
inline constexpr std::size_t kLongestLine = 6 * (kMaxValueBytes + kMaxKeyBytes) + 4096;

// Bounds the lines of a text that arrives in pieces, so that input without line ends is not read
// into memory without end.
class LineBound {
 public:
  explicit LineBound(std::size_t longest = kLongestLine) : longest_(longest) {}
  // Returns why the text is refused; empty if it may go on. `name` is for the message.
  std::string add(std::string_view piece, const std::string& name);

 private:
  std::size_t longest_;
  std::uint64_t lines_ = 0;
  std::size_t open_bytes_ = 0;  // of the line that has not ended
};

// Reads a file in parts of some megabytes, so that a file of any length can be loaded. A key occurs
// once within a part. A package index is one part.
class RecordReader {
 public:
  // "-" is standard input.
  static OrFailure<RecordReader> open(const std::string& path, RecordOptions options);
  // Returns the next part. A part without records, good or bad, is the end.
  OrFailure<RecordSet> next();
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0: not known

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
  LineBound bound_;
  std::string rest_;        // read already; belongs to the next part
  std::uint64_t line_ = 0;  // lines in the parts before
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_total_ = 0;
};
// Reads a whole file whose lines have at most `longest_line` bytes. "-" is standard input.
OrFailure<std::string> read_file(const std::string& path, std::size_t longest_line = kLongestLine);
// Reads standard input, a single key or value. kUsage: it has more than `most` bytes.
OrFailure<std::string> read_value(std::size_t most);
// Parses keys, one a line, escaped or in hex.
OrFailure<std::vector<std::string>> parse_keys(std::string_view text, const std::string& name,
                                               bool hex);

// Returns why a key or value cannot be stored; empty if it can.
std::string key_problem(std::string_view key);
std::string value_problem(std::string_view value);

}  // namespace rkv::cli
