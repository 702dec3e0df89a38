// Checks linearizability of one key with one writer and any number of readers, as reads end. Values
// must be distinct, so that a read identifies its state. "Absent" may be ambiguous; then the
// earliest possible state is assumed, which restricts later reads the least.
//
//   history.write_begins("v1"); store.put(...); history.write_ended();
//   auto since = history.read_begins(); ...; EXPECT_TRUE(history.read_ended(since, "v1"));
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rkv::testing {

class SingleWriterHistory {
 public:
  using State = std::optional<std::string>;  // empty = absent

  void write_begins(State state) { states_.push_back(std::move(state)); }
  void write_ended() { acknowledged_ = states_.size() - 1; }
  // The write failed and changed nothing.
  void write_failed() { states_.pop_back(); }

  // The oldest state that a read beginning now may return: the last acknowledged state, or a later
  // one that some read has returned.
  std::size_t read_begins() const { return std::max(acknowledged_, seen_); }
  bool read_ended(std::size_t oldest, const State& state) {
    for (std::size_t i = oldest; i < states_.size(); ++i) {
      if (states_[i] != state) continue;
      seen_ = std::max(seen_, i);
      return true;
    }
    return false;
  }
  const State& current() const { return states_.back(); }

 private:
  std::vector<State> states_ = {std::nullopt};
  std::size_t acknowledged_ = 0;
  std::size_t seen_ = 0;
};

}  // namespace rkv::testing
