// Java's .properties format, as YCSB's workload files use it, with the place of every value, so
// that a mistake is told with file, line and column.
//
// The format is that of java.util.Properties.load: comments begin with # or !, a backslash at a
// line's end continues it, '=', ':' or white space end the key, \t \n \r \f and \uXXXX stand for
// characters, and a backslash before anything else is dropped. Bytes above 127 are kept as they
// are; \uXXXX becomes UTF-8. The one thing Java rejects is a broken \uXXXX; a control character is
// rejected here besides, since the file is then no text; a byte order mark at its begin is skipped.
//
//   Properties properties;
//   if (auto read = properties.read_file("workloads/workloada"); !read) complain(read.error());
//   auto records = properties.number("recordcount", 0, 1, limit);
//
// Thread safety: none while it is written; reading from any number of threads.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <string>
#include <string_view>

namespace rkv::kvbench {

// One sentence for people, with the place where there is one, without a full stop.
template <class T>
using OrSentence = std::expected<T, std::string>;

struct Property {
  std::string value;
  std::string place;  // "workloada:12:16", where the value begins; "-p", "-threads"
};

class Properties {
 public:
  // Later ones replace earlier ones. `name` is what mistakes are told with.
  OrSentence<void> read_text(std::string_view text, const std::string& name);
  OrSentence<void> read_file(const std::string& path);
  void set(const std::string& name, std::string value, std::string place);

  const std::map<std::string, Property>& all() const { return properties_; }
  bool has(const std::string& name) const { return properties_.contains(name); }
  std::string text(const std::string& name, std::string_view fallback) const;
  // "place: " of a property, for a sentence of the caller's; empty when it is not set.
  std::string place(const std::string& name) const;

  // A value outside its limits, or none at all, is a sentence that names property and place.
  OrSentence<std::uint64_t> number(const std::string& name, std::uint64_t fallback,
                                   std::uint64_t least, std::uint64_t most) const;
  OrSentence<double> real(const std::string& name, double fallback, double least,
                          double most) const;
  // As Java's parseBoolean, which takes any case of "true"; anything but true and false is told.
  OrSentence<bool> boolean(const std::string& name, bool fallback) const;

 private:
  std::map<std::string, Property> properties_;
};

}  // namespace rkv::kvbench
