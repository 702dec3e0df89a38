#include <optional>

#include "client/cli/shell.h"
#include "client/cli/text.h"

namespace rkv::cli {

namespace {

// Splits a line in one pass.
class Splitter {
 public:
  explicit Splitter(std::string_view line) : rest_(line) {}

  std::expected<std::vector<std::string>, std::string> run() {
    std::vector<std::string> words;
    for (;;) {
      skip_blanks();
      if (rest_.empty() || rest_.front() == '#') return words;
      auto word = take_word();
      if (!word) return std::unexpected(word.error());
      words.push_back(std::move(*word));
    }
  }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front()))
      rest_.remove_prefix(1);
  }

  std::expected<std::string, std::string> take_word() {
    std::string word;
    while (!rest_.empty() && !is_blank(rest_.front())) {
      const char c = rest_.front();
      if (c != '"' && c != '\'') {
        word += c;
        rest_.remove_prefix(1);
        continue;
      }
      const std::size_t end = closing_quote(c);
      if (end == std::string_view::npos) return std::unexpected("a quote is not closed");
      const auto inside = c == '"' ? unescape(rest_.substr(1, end - 1))
                                   : std::optional(std::string(rest_.substr(1, end - 1)));
      if (!inside) return std::unexpected("unknown escape inside \"...\"");
      word += *inside;
      rest_.remove_prefix(end + 1);
    }
    if (word.find('\0') != std::string::npos) {
      return std::unexpected("a zero byte can only be written with --hex");
    }
    return word;
  }

  std::size_t closing_quote(char quote) const {
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == quote) return i;
      if (quote == '"' && rest_[i] == '\\') ++i;
    }
    return std::string_view::npos;
  }

  // Recognizes the escapes of TSV, and \".
  static std::optional<std::string> unescape(std::string_view text) {
    std::string tsv;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) {
        ++i;
        if (text[i] != '"') tsv += '\\';
      }
      tsv += text[i];
    }
    return unescape_tsv(tsv);
  }

  std::string_view rest_;
};

}  // namespace

std::expected<std::vector<std::string>, std::string> split_words(std::string_view line) {
  return Splitter(line).run();
}

}  // namespace rkv::cli
