// Writes Prometheus' text format (version 0.0.4): families of samples in sequence.
//
//   Exposition out;
//   out.family("kvserver_turns_total", "counter", "Turns of a worker's loop.");
//   out.sample({{"worker", "0"}}, 12);
//   send(out.text());
//
// No library is used: the format is lines of "name{label="value"} number". All values are known at
// the moment of a scrape, so a registry would have nothing to keep.
//
// Thread safety: one owner.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace rkv::server {

class Exposition {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // Begins a family. `type`: "counter", "gauge" or "histogram". The samples that follow belong to
  // it.
  void family(std::string_view name, std::string_view type, std::string_view help);
  template <std::integral T>
  void sample(Labels labels, T value) {
    line("", labels, std::to_string(value));
  }
  void sample(Labels labels, double value) { line("", labels, number(value)); }
  // Writes a line of a histogram: `suffix` is "_bucket", "_sum" or "_count".
  void part(std::string_view suffix, Labels labels, double value) {
    line(suffix, labels, number(value));
  }
  void part(std::string_view suffix, Labels labels, std::uint64_t value) {
    line(suffix, labels, std::to_string(value));
  }
  // Writes a family with one sample.
  template <class T>
  void one(std::string_view name, std::string_view type, std::string_view help, T value) {
    family(name, type, help);
    sample({}, value);
  }

  const std::string& text() const { return text_; }
  static std::string number(double value);

 private:
  void line(std::string_view suffix, Labels labels, std::string_view value);

  std::string text_;
  std::string name_;  // name of the current family
};

}  // namespace rkv::server
