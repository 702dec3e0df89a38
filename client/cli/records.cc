#include "client/cli/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "client/cli/text.h"
#include "common/parse.h"
#include "rkv/limits.h"

namespace rkv::cli {

namespace {

using nlohmann::json;

constexpr std::uint64_t kLatestExpiryMs = std::uint64_t{1} << 42;  // the server's limit

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

void skip_byte_order_mark(std::string_view& text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
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
  // `lines_before`: lines of the file before this text.
  Parser(std::string text, const std::string& name, const RecordOptions& options,
         std::uint64_t lines_before)
      : name_(name), options_(options), lines_before_(lines_before) {
    set_.texts.push_back(std::move(text));
    rest_ = set_.texts.front();
    if (lines_before == 0) skip_byte_order_mark(rest_);
  }

  OrFailure<RecordSet> run() {
    Format format = options_.format;
    if (format == Format::kAuto) {
      const auto found = detect_format(rest_, name_);
      if (!found) return std::unexpected(found.error());
      format = *found;
    }
    const bool ok = format == Format::kDeb822 ? deb822() : lines(format != Format::kJsonl);
    if (!ok) return std::unexpected(failure_);
    return std::move(set_);
  }

 private:
  // Handles a bad record; returns true to continue. `column` 0: the line as a whole.
  bool bad(std::size_t line, std::size_t column, std::string_view why) {
    const std::string place = column == 0
                                  ? fmt::format("{}:{}", name_, lines_before_ + line)
                                  : fmt::format("{}:{}:{}", name_, lines_before_ + line, column);
    const std::string sentence = fmt::format("{}: {}", place, why);
    ++set_.bad;
    if (options_.on_bad) {
      options_.on_bad(sentence);
      return true;
    }
    failure_ = {.exit_code = kFailed, .sentence = sentence};
    return false;
  }

  // Columns where a record's key and value begin; 0: not known.
  struct Columns {
    std::size_t key = 0;
    std::size_t value = 0;
  };

  bool add(std::size_t line, Columns columns, const Record& record) {
    if (const std::string problem = key_problem(record.key); !problem.empty())
      return bad(line, columns.key, problem);
    if (const std::string problem = value_problem(record.value); !problem.empty())
      return bad(line, columns.value, problem);
    const auto [place, is_new] = places_.try_emplace(record.key, set_.records.size());
    if (is_new) {
      set_.records.push_back(record);
      set_.bytes += record.key.size() + record.value.size();
      return true;
    }
    Record& before = set_.records[place->second];
    set_.bytes += record.value.size() - before.value.size();
    const std::string_view key = before.key;  // places_ points to this key
    before = record;
    before.key = key;
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
          problem = "this is not a field of a stanza (Name: value)";
          problem_line = line_number;
        }
      }
      if (value.empty()) continue;  // there were several blank lines
      if (problem.empty() && !package) problem = "the stanza has no Package field";
      const bool go_on = problem.empty()
                             ? add(first_line, {}, {.key = *package, .value = value, .number = {}})
                             : bad(problem_line, 0, problem);
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

  // Returns the decoded text: a view of `text` itself if nothing had to be decoded.
  std::optional<std::string_view> decode(std::string_view text) {
    if (!options_.hex && text.find('\\') == std::string_view::npos) return text;
    auto decoded = options_.hex ? from_hex(text) : unescape_tsv(text);
    if (!decoded) return std::nullopt;
    return set_.texts.emplace_back(std::move(*decoded));
  }

  bool undecodable(std::size_t line, std::size_t column, std::string_view text) {
    if (options_.hex) return bad(line, column, "key or value is not hexadecimal");
    return bad(line, column + bad_escape_at(text),
               "unknown escape: write \\t \\n \\r \\\\ or \\xNN");
  }

  // Parses the text after \@; false if it is not valid, or the record has that attribute already.
  static bool set_attribute(std::string_view text, Record& record, bool& is_counter) {
    if (text == "counter") return !std::exchange(is_counter, true);
    constexpr std::string_view kExpires = "expires=";
    if (!text.starts_with(kExpires) || record.expires_at_ms != 0) return false;
    const auto ms = parse_number<std::uint64_t>(text.substr(kExpires.size()));
    if (!ms || *ms == 0 || *ms > kLatestExpiryMs) return false;
    record.expires_at_ms = *ms;
    return true;
  }

  bool tsv_line(std::string_view line, std::size_t number) {
    static constexpr std::string_view kAttribute = "\t\\@";
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      return bad(number, line.size() + 1, "there is no TAB after the key");
    }
    const std::string_view key_text = line.substr(0, tab);
    const std::size_t value_column = tab + 2;
    std::string_view value_text = line.substr(tab + 1);
    Record record;
    bool is_counter = false;
    for (std::size_t at = 0; (at = value_text.rfind(kAttribute)) != std::string_view::npos;) {
      if (!set_attribute(value_text.substr(at + kAttribute.size()), record, is_counter)) {
        return bad(number, value_column + at + 1,
                   fmt::format("unknown attribute: write \\@counter, or \\@expires= and Unix "
                               "milliseconds from 1 to {}",
                               kLatestExpiryMs));
      }
      value_text = value_text.substr(0, at);
    }
    const auto key = decode(key_text);
    if (!key) return undecodable(number, 1, key_text);
    record.key = *key;
    if (is_counter) {
      record.number = parse_number<std::int64_t>(value_text);
      if (!record.number) {
        return bad(number, value_column, "a counter must be a whole number of 64 bits");
      }
    } else {
      const auto value = decode(value_text);
      if (!value) return undecodable(number, value_column, value_text);
      record.value = *value;
    }
    return add(number, {.key = 1, .value = value_column}, record);
  }

  // Returns the bytes of field `name`, NAME_base64 or NAME_hex; or what is wrong.
  std::expected<std::string, std::string> json_bytes(const json& object,
                                                     const std::string& name) const {
    for (const char* form : {"", "_base64", "_hex"}) {
      const std::string field = name + form;
      const auto found = object.find(field);
      if (found == object.end()) continue;
      const auto* const text = found->get_ptr<const std::string*>();
      if (text == nullptr) return std::unexpected(fmt::format("\"{}\" is not a string", field));
      const bool base64 = *form != 0 && field.ends_with("_base64");
      if (*form == 0 && !options_.hex) return *text;
      auto bytes = base64 ? from_base64(*text) : from_hex(*text);
      if (bytes) return std::move(*bytes);
      return std::unexpected(
          fmt::format("\"{}\" is not valid {}", field, base64 ? "base64" : "hexadecimal"));
    }
    return std::unexpected(fmt::format("\"{}\" (or _base64, _hex) is missing", name));
  }

  static bool has_bytes(const json& object, const std::string& name) {
    return object.contains(name) || object.contains(name + "_base64") ||
           object.contains(name + "_hex");
  }

  struct Mistake {
    std::size_t column = 1;
    std::string why;
  };

  // Returns why a field is not allowed after the fields before it. Unknown fields are refused:
  // otherwise a misspelt expiry would be lost silently. "version" is shown by scan, and cannot be
  // set.
  static std::string field_problem(const std::string& name, std::vector<std::string>& before) {
    static constexpr std::string_view kForms[] = {"", "_base64", "_hex"};
    std::string of = name;
    for (const std::string_view what : {"key", "value"}) {
      for (const std::string_view form : kForms) {
        if (name == std::string(what) + std::string(form)) of = what;
      }
    }
    if (of != "key" && of != "value" && of != "counter" && of != "expires_at_ms" &&
        of != "version") {
      return fmt::format("unknown field \"{}\"", rkv::shown(name));
    }
    if (std::ranges::find(before, of) != before.end()) {
      return fmt::format("\"{}\" is given twice", of);
    }
    before.push_back(of);
    return {};
  }

  // Finds the number's place in the line: the library's message has only its text.
  static Mistake too_large(std::string_view line, std::string_view library) {
    const std::size_t quote = library.find('\'');
    const std::size_t end = library.rfind('\'');
    Mistake mistake{.column = 1, .why = "the number is too large"};
    if (quote == std::string_view::npos || end <= quote) return mistake;
    const std::size_t at = line.find(library.substr(quote + 1, end - quote - 1));
    if (at != std::string_view::npos) mistake.column = at + 1;
    return mistake;
  }

  static std::expected<json, Mistake> parse_json(std::string_view line) {
    std::vector<std::string> fields;
    std::string problem;
    const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::key && depth == 1 && problem.empty()) {
        problem = field_problem(parsed.get_ref<const std::string&>(), fields);
      }
      return true;
    };
    try {
      json object = json::parse(line, look);
      if (!object.is_object()) return std::unexpected(Mistake{.why = "this is not a JSON object"});
      if (!problem.empty()) return std::unexpected(Mistake{.why = problem});
      return object;
    } catch (const json::parse_error& error) {
      return std::unexpected(Mistake{.column = std::max<std::size_t>(error.byte, 1),
                                     .why = "this is not a JSON object"});
    } catch (const json::out_of_range& error) {
      return std::unexpected(too_large(line, error.what()));
    }
  }

  // Parses "counter" and "expires_at_ms"; false if they are not valid.
  static bool set_numbers(const json& object, Record& record) {
    if (const auto found = object.find("expires_at_ms"); found != object.end()) {
      if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kLatestExpiryMs) {
        return false;
      }
      record.expires_at_ms = found->get<std::uint64_t>();
    }
    const auto found = object.find("counter");
    if (found == object.end()) return true;
    if (!found->is_number_integer()) return false;
    const bool too_large =
        found->is_number_unsigned() && found->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    if (!too_large) record.number = found->get<std::int64_t>();
    return !too_large;
  }

  bool json_line(std::string_view line, std::size_t number) {
    const auto object = parse_json(line);
    if (!object) return bad(number, object.error().column, object.error().why);
    Record record;
    if (!set_numbers(*object, record)) {
      return bad(number, 1,
                 "\"counter\" must be a whole number of 64 bits, \"expires_at_ms\" one up to 2^42");
    }
    if (record.number && has_bytes(*object, "value")) {
      return bad(number, 1, "a record must have \"value\" or \"counter\", not both");
    }
    auto key = json_bytes(*object, "key");
    if (!key) return bad(number, 1, key.error());
    auto value = record.number ? std::string() : json_bytes(*object, "value");
    if (!value) return bad(number, 1, value.error());
    record.key = set_.texts.emplace_back(std::move(*key));
    record.value = set_.texts.emplace_back(std::move(*value));
    return add(number, {.key = 1, .value = 1}, record);
  }

  const std::string& name_;
  const RecordOptions& options_;
  const std::uint64_t lines_before_;
  RecordSet set_;
  std::string_view rest_;
  std::unordered_map<std::string_view, std::size_t> places_;
  Failure failure_;
};

}  // namespace

OrFailure<Format> detect_format(std::string_view text, const std::string& name) {
  skip_byte_order_mark(text);
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (is_blank(line)) continue;
    if (line.starts_with('{')) return Format::kJsonl;
    if (line.find('\t') != std::string_view::npos) return Format::kTsv;
    if (is_field(line)) return Format::kDeb822;
    return failure(kFailed,
                   fmt::format("{}: unknown format: give --format deb822, tsv or jsonl", name));
  }
  return Format::kAuto;
}

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
                                   const RecordOptions& options, std::uint64_t lines_before) {
  return Parser(std::move(text), name, options, lines_before).run();
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

}  // namespace rkv::cli
