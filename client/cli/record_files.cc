// Files of records: reads them in parts, and formats their lines.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/cli/output.h"
#include "client/cli/records.h"
#include "client/cli/text.h"

namespace rkv::cli {

// Escapes the first byte if the line's format would otherwise be misdetected: a blank, or a byte
// that looks like JSON.
std::string to_tsv(const Record& record, bool hex) {
  const auto show = hex ? to_hex : escape_tsv;
  std::string line = show(record.key);
  if (!hex && (line.starts_with(' ') || line.starts_with('{'))) {
    line = "\\x" + to_hex(line.substr(0, 1)) + line.substr(1);
  } else if (line.starts_with(kByteOrderMark)) {
    line = "\\xef\\xbb\\xbf" + line.substr(kByteOrderMark.size());
  }
  line += '\t';
  line += record.number ? std::to_string(*record.number) : show(record.value);
  if (record.number) line += "\t\\@counter";
  if (record.expires_at_ms != 0) line += fmt::format("\t\\@expires={}", record.expires_at_ms);
  return line + '\n';
}

std::string to_jsonl(const Record& record, bool hex) {
  Json object;
  set_bytes(object, "key", record.key, hex);
  if (record.number) {
    object["counter"] = *record.number;
  } else {
    set_bytes(object, "value", record.value, hex);
    if (record.expires_at_ms != 0) object["expires_at_ms"] = record.expires_at_ms;
  }
  return object.dump() + '\n';
}

namespace {

std::unexpected<Failure> cannot_read(const std::string& path) {
  return failure(kFailed, fmt::format("cannot read {}: {}", path == "-" ? "standard input" : path,
                                      std::strerror(errno)));
}

// Length of a part; its last line may exceed it.
constexpr std::size_t kPartBytes = std::size_t{4} << 20;

}  // namespace

void RecordReader::Close::operator()(std::FILE* file) const {
  if (file != stdin) std::fclose(file);
}

RecordReader::RecordReader(std::string path, RecordOptions options)
    : path_(std::move(path)),
      name_(path_ == "-" ? "standard input" : path_),
      options_(std::move(options)) {}

OrFailure<RecordReader> RecordReader::open(const std::string& path, RecordOptions options) {
  RecordReader reader(path, std::move(options));
  errno = 0;
  reader.file_.reset(path == "-" ? stdin : std::fopen(path.c_str(), "rbe"));
  if (reader.file_ == nullptr) return cannot_read(path);
  struct stat facts{};
  if (fstat(fileno(reader.file_.get()), &facts) == 0 && S_ISREG(facts.st_mode)) {
    reader.bytes_total_ = static_cast<std::uint64_t>(facts.st_size);
  }
  return reader;
}

// Reads up to the end of a line or of the file; a package index is read whole.
OrFailure<std::string> RecordReader::read_part() {
  std::string text = std::exchange(rest_, {});
  std::string chunk(std::size_t{1} << 16, '\0');
  std::size_t last_end = std::string::npos;
  errno = 0;
  for (;;) {
    if (last_end != std::string::npos && text.size() >= kPartBytes &&
        options_.format != Format::kDeb822) {
      rest_ = text.substr(last_end + 1);
      text.resize(last_end + 1);
      return text;
    }
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file_.get());
    if (std::ferror(file_.get()) != 0) return cannot_read(path_);
    if (got == 0) return text;
    const std::size_t end = std::string_view(chunk).substr(0, got).rfind('\n');
    if (end != std::string_view::npos) last_end = text.size() + end;
    const std::string refused = bound_.add(std::string_view(chunk).substr(0, got), name_);
    if (!refused.empty()) return failure(kFailed, refused);
    text.append(chunk, 0, got);
    bytes_read_ += got;
    if (options_.format == Format::kAuto && last_end != std::string::npos) {
      const auto format = detect_format(std::string_view(text).substr(0, last_end + 1), name_);
      if (!format) return std::unexpected(format.error());
      options_.format = *format;
    }
  }
}

OrFailure<RecordSet> RecordReader::next() {
  for (;;) {
    auto text = read_part();
    if (!text) return std::unexpected(text.error());
    if (text->empty()) return RecordSet();
    const auto lines = static_cast<std::uint64_t>(std::count(text->begin(), text->end(), '\n'));
    auto set = parse_records(std::move(*text), name_, options_, line_);
    line_ += lines;
    if (!set || !set->records.empty() || set->bad != 0) return set;
  }
}

std::string LineBound::add(std::string_view piece, const std::string& name) {
  const auto ends = static_cast<std::uint64_t>(std::ranges::count(piece, '\n'));
  const std::size_t first = piece.find('\n');
  const std::size_t whole = open_bytes_ + (ends == 0 ? piece.size() : first);
  if (whole > longest_) {
    return fmt::format("{}:{}: the line has more than {} bytes: is it the right file?", name,
                       lines_ + 1, longest_);
  }
  lines_ += ends;
  open_bytes_ = ends == 0 ? whole : piece.size() - piece.rfind('\n') - 1;
  return {};
}

namespace {

// Reads until the end, or until `add` returns a sentence.
OrFailure<std::string> read_all(const std::string& path, auto&& add) {
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  errno = 0;
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return cannot_read(path);
  std::string text;
  std::string chunk(std::size_t{1} << 16, '\0');
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0) {
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    text.append(chunk, 0, got);
    const Failure refused = add(std::string_view(chunk).substr(0, got), text.size());
    if (!refused.sentence.empty()) return std::unexpected(refused);
  }
  if (std::ferror(file.get()) != 0) return cannot_read(path);
  return text;
}

}  // namespace

OrFailure<std::string> read_file(const std::string& path, std::size_t longest_line) {
  LineBound bound(longest_line);
  const std::string name = path == "-" ? "standard input" : path;
  return read_all(path, [&](std::string_view piece, std::size_t) {
    return Failure{.exit_code = kFailed, .sentence = bound.add(piece, name)};
  });
}

OrFailure<std::string> read_value(std::size_t most) {
  return read_all("-", [&](std::string_view, std::size_t length) {
    return Failure{.exit_code = kUsage,
                   .sentence = length <= most
                                   ? ""
                                   : fmt::format("standard input has more than {} bytes: "
                                                 "the value has at most {} (16 MiB)",
                                                 most, kMaxValueBytes)};
  });
}

}  // namespace rkv::cli
