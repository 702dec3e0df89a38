// Java's .properties format, as in YCSB's workload files, with the position of each value, so that
// errors name file, line and column.
//
// The format is that of java.util.Properties.load. Comments begin with # or !. A backslash at a
// line's end continues the line. '=', ':' or white space end the key. \t \n \r \f and \uXXXX stand
// for characters, and a backslash before any other character is dropped. Bytes above 127 are kept;
// \uXXXX becomes UTF-8. As in Java a broken \uXXXX is an error. Control characters are errors too,
// because such a file is not text. A byte order mark at the beginning is skipped.
//
//   Properties properties;
//   if (auto read = properties.read_file("workloads/workloada"); !read) complain(read.error());
//   auto records = properties.number("recordcount", 0, 1, limit);
//
// Thread safety: none during writes; reads from any number of threads.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <string>
#include <string_view>

namespace rkv::kvbench {

// A value, or an error sentence with its position if there is one, without a full stop.
template <class T>
using OrSentence = std::expected<T, std::string>;

struct Property {
  std::string value;
  std::string place;  // "workloada:12:16", where the value begins; "-p", "-threads"
};

class Properties {
 public:
  // Later properties replace earlier ones. Errors name the text by `name`.
  OrSentence<void> read_text(std::string_view text, const std::string& name);
  OrSentence<void> read_file(const std::string& path);
  void set(const std::string& name, std::string value, std::string place);

  const std::map<std::string, Property>& all() const { return properties_; }
  bool has(const std::string& name) const { return properties_.contains(name); }
  std::string text(const std::string& name, std::string_view fallback) const;
  // "place: " of a property, as the begin of an error sentence; empty when the property is not set.
  std::string place(const std::string& name) const;

  // A value outside its limits, or without a number, gives a sentence that names property and
  // position.
  OrSentence<std::uint64_t> number(const std::string& name, std::uint64_t fallback,
                                   std::uint64_t least, std::uint64_t most) const;
  OrSentence<double> real(const std::string& name, double fallback, double least,
                          double most) const;
  // As Java's parseBoolean, which accepts "true" in any case. Values other than true and false are
  // errors.
  OrSentence<bool> boolean(const std::string& name, bool fallback) const;

 private:
  std::map<std::string, Property> properties_;
};

}  // namespace rkv::kvbench
