#include "client/cli/records.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "client/cli/text.h"
#include "rkv/limits.h"

namespace rkv::cli {

namespace {

using nlohmann::json;

// Splits off the first line, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view without_cr(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// "Name: value" of deb822: the name has no space or control character before its colon.
bool is_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  for (const char c : line.substr(0, colon)) {
    if (c <= ' ' || c == 0x7F) return false;
  }
  return true;
}

std::optional<std::string_view> package_of(std::string_view line) {
  static constexpr std::string_view kName = "package:";
  if (line.size() < kName.size()) return std::nullopt;
  for (std::size_t i = 0; i < kName.size(); ++i) {
    const char c = line[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kName[i]) return std::nullopt;
  }
  line.remove_prefix(kName.size());
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::string_view();
  const std::size_t last = line.find_last_not_of(" \t\r");
  return line.substr(first, last - first + 1);
}

class Parser {
 public:
  Parser(std::string text, const std::string& name, const RecordOptions& options)
      : name_(name), options_(options) {
    set_.texts.push_back(std::move(text));
    rest_ = set_.texts.front();
  }

  OrFailure<RecordSet> run() {
    Format format = options_.format;
    if (format == Format::kAuto) {
      const auto found = detect();
      if (!found) return std::unexpected(found.error());
      format = *found;
    }
    const bool ok = format == Format::kDeb822 ? deb822() : lines(format == Format::kTsv);
    if (!ok) return std::unexpected(failure_);
    return std::move(set_);
  }

 private:
  OrFailure<Format> detect() const {
    std::string_view text = rest_;
    while (!text.empty()) {
      const std::string_view line = take_line(text);
      if (is_blank(line)) continue;
      if (line.starts_with('{')) return Format::kJsonl;
      if (line.find('\t') != std::string_view::npos) return Format::kTsv;
      if (is_field(line)) return Format::kDeb822;
      return failure(kFailed, fmt::format("{}: cannot tell the format: say --format deb822, tsv or "
                                          "jsonl",
                                          name_));
    }
    return Format::kTsv;  // nothing in it: no records in any format
  }

  // Whether to go on after a bad record.
  bool bad(std::size_t line, std::string_view why) {
    const std::string sentence = fmt::format("{}:{}: {}", name_, line, why);
    ++set_.bad;
    if (options_.on_bad) {
      options_.on_bad(sentence);
      return true;
    }
    failure_ = {.exit_code = kFailed, .sentence = sentence};
    return false;
  }

  bool add(std::size_t line, std::string_view key, std::string_view value) {
    std::string problem = key_problem(key);
    if (problem.empty()) problem = value_problem(value);
    if (!problem.empty()) return bad(line, problem);
    const auto [place, is_new] = places_.try_emplace(key, set_.records.size());
    if (is_new) {
      set_.records.push_back({.key = key, .value = value});
      set_.bytes += key.size() + value.size();
      return true;
    }
    Record& before = set_.records[place->second];
    set_.bytes += value.size() - before.value.size();
    before.value = value;
    ++set_.replaced;
    return true;
  }

  bool deb822() {
    std::size_t line_number = 0;
    while (!rest_.empty()) {
      const std::size_t first_line = line_number + 1;
      const char* const start = rest_.data();
      std::string_view value;
      std::optional<std::string_view> package;
      std::string problem;
      std::size_t problem_line = first_line;
      while (!rest_.empty()) {
        const std::string_view line = take_line(rest_);
        ++line_number;
        if (is_blank(line)) break;
        value = {start, static_cast<std::size_t>(line.data() + line.size() - start)};
        if (const auto name = package_of(line)) package = name;
        const bool continues = line.front() == ' ' || line.front() == '\t';
        const bool fine = continues ? line.data() != start : is_field(line) || line[0] == '#';
        if (!fine && problem.empty()) {
          problem = "this is no field of a stanza (Name: value)";
          problem_line = line_number;
        }
      }
      if (value.empty()) continue;  // several blank lines
      if (problem.empty() && !package) problem = "the stanza has no Package field";
      const bool go_on =
          problem.empty() ? add(first_line, *package, value) : bad(problem_line, problem);
      if (!go_on) return false;
    }
    return true;
  }

  bool lines(bool tsv) {
    for (std::size_t line_number = 1; !rest_.empty(); ++line_number) {
      const std::string_view line = without_cr(take_line(rest_));
      if (is_blank(line)) continue;
      if (!(tsv ? tsv_line(line, line_number) : json_line(line, line_number))) return false;
    }
    return true;
  }

  // A view of the decoded text: the text itself when nothing had to be decoded.
  std::optional<std::string_view> decode(std::string_view text) {
    if (!options_.hex && text.find('\\') == std::string_view::npos) return text;
    auto decoded = options_.hex ? from_hex(text) : unescape_tsv(text);
    if (!decoded) return std::nullopt;
    return set_.texts.emplace_back(std::move(*decoded));
  }

  bool tsv_line(std::string_view line, std::size_t number) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return bad(number, "there is no TAB after the key");
    const auto key = decode(line.substr(0, tab));
    const auto value = decode(line.substr(tab + 1));
    if (!key || !value) {
      return bad(number, options_.hex ? "key or value is not hexadecimal"
                                      : "unknown escape: write \\t \\n \\r \\\\ or \\xNN");
    }
    return add(number, *key, *value);
  }

  // The bytes of field `name`, NAME_base64 or NAME_hex.
  std::optional<std::string> json_bytes(const json& object, const std::string& name) const {
    const auto text = [&](const std::string& field) -> const std::string* {
      const auto found = object.find(field);
      return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
    };
    if (const auto* plain = text(name)) return options_.hex ? from_hex(*plain) : *plain;
    if (const auto* base64 = text(name + "_base64")) return from_base64(*base64);
    if (const auto* hex = text(name + "_hex")) return from_hex(*hex);
    return std::nullopt;
  }

  bool json_line(std::string_view line, std::size_t number) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return bad(number, "this is no JSON object");
    auto key = json_bytes(object, "key");
    auto value = json_bytes(object, "value");
    if (!key || !value) {
      return bad(number, "\"key\" and \"value\" must be there, each a string (or _base64, _hex)");
    }
    const std::string_view key_view = set_.texts.emplace_back(std::move(*key));
    return add(number, key_view, set_.texts.emplace_back(std::move(*value)));
  }

  const std::string& name_;
  const RecordOptions& options_;
  RecordSet set_;
  std::string_view rest_;
  std::unordered_map<std::string_view, std::size_t> places_;
  Failure failure_;
};

}  // namespace

std::string key_problem(std::string_view key) {
  if (key.empty()) return "the key is empty";
  if (key.size() <= kMaxKeyBytes) return {};
  return fmt::format("the key has {} bytes, more than {}", key.size(), kMaxKeyBytes);
}

std::string value_problem(std::string_view value) {
  if (value.size() <= kMaxValueBytes) return {};
  return fmt::format("the value has {} bytes, more than {} (16 MiB)", value.size(), kMaxValueBytes);
}

OrFailure<RecordSet> parse_records(std::string text, const std::string& name,
                                   const RecordOptions& options) {
  return Parser(std::move(text), name, options).run();
}

OrFailure<std::vector<std::string>> parse_keys(std::string_view text, const std::string& name,
                                               bool hex) {
  std::vector<std::string> keys;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = without_cr(take_line(text));
    if (line.empty()) continue;
    auto key = hex ? from_hex(line) : unescape_tsv(line);
    if (!key) {
      return failure(kFailed,
                     fmt::format("{}:{}: {}", name, number,
                                 hex ? "the key is not hexadecimal" : "unknown escape in the key"));
    }
    if (const std::string problem = key_problem(*key); !problem.empty()) {
      return failure(kFailed, fmt::format("{}:{}: {}", name, number, problem));
    }
    keys.push_back(std::move(*key));
  }
  return keys;
}

OrFailure<std::string> read_file(const std::string& path) {
  const auto cannot = [&] {
    return failure(kFailed, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  };
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  errno = 0;
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return cannot();
  std::string text;
  std::string chunk(std::size_t{1} << 16, '\0');
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0) {
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    text.append(chunk, 0, got);
  }
  if (std::ferror(file.get()) != 0) return cannot();
  return text;
}

}  // namespace rkv::cli
