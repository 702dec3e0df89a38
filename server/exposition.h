// Prometheus' text format (version 0.0.4): families of samples, one after the other.
//
//   Exposition out;
//   out.family("kvserver_turns_total", "counter", "Turns of a worker's loop.");
//   out.sample({{"worker", "0"}}, 12);
//   send(out.text());
//
// Written by hand: the format is lines of "name{label="value"} number", and everything is known at
// the moment of a scrape, so there is nothing for a registry to keep.
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

  // `type`: "counter", "gauge" or "histogram". The samples that follow are the family's.
  void family(std::string_view name, std::string_view type, std::string_view help);
  template <std::integral T>
  void sample(Labels labels, T value) {
    line("", labels, std::to_string(value));
  }
  void sample(Labels labels, double value) { line("", labels, number(value)); }
  // A line of a histogram: `suffix` is "_bucket", "_sum" or "_count".
  void part(std::string_view suffix, Labels labels, double value) {
    line(suffix, labels, number(value));
  }
  void part(std::string_view suffix, Labels labels, std::uint64_t value) {
    line(suffix, labels, std::to_string(value));
  }
  // A family with one sample.
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
  std::string name_;  // of the family
};

}  // namespace rkv::server
